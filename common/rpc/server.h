#ifndef PARLEY_COMMON_RPC_SERVER_H_
#define PARLEY_COMMON_RPC_SERVER_H_

#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/server.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/front_door.h"
#include "common/rpc/refusals.h"
#include "common/rpc/rpc_observer.h"
#include "common/security/credentials.h"

namespace grpc::experimental {
class ExternalConnectionAcceptor;
}

namespace parley {

// The host of "host:port", as it is to listen; empty where it is none.
std::string HostOf(const std::string& address);

// A gRPC server on one address, with the standard health service and reflection. Services must
// outlive it.
class RpcServer {
 public:
  // Whom it lets in, and who is to be told why somebody was not (one of kWhyRefused), and who that
  // is, as far as it is known: gRPC does not say who had another certificate or no token, so these
  // are those who have come of late.
  struct Entry {
    SharedCredentials credentials;
    Refusals::Told refused;  // on threads of the server; must not wait
  };

  // listen: host:port; port 0 takes a free one. InvalidArgument where it is no host:port,
  // Unavailable where the port is in use (the message says so). `observer` runs on gRPC's threads;
  // may be empty.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const std::string& listen, const std::vector<grpc::Service*>& services, RpcObserver observer,
      const Entry& entry = {});
  ~RpcServer();

  // host:port with the real port.
  const std::string& address() const { return address_; }

  // What the health service says; true from the start.
  void SetServing(bool serving);

  // Ends open calls within `grace`. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  using Acceptor = std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>;
  RpcServer(std::shared_ptr<Refusals> refusals, Acceptor acceptor,
            std::unique_ptr<grpc::Server> server, std::string address);

  const std::shared_ptr<Refusals> refusals_;
  const Acceptor acceptor_;
  const std::unique_ptr<grpc::Server> server_;
  const std::string address_;
  std::unique_ptr<FrontDoor> door_;  // until Shutdown
};

}  // namespace parley

#endif  // PARLEY_COMMON_RPC_SERVER_H_
