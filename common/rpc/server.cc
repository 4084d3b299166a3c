#include "common/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/observing_interceptor.h"

namespace parley {

std::string HostOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0) return "";
  if (!absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 || port > 65535) return "";
  return address.substr(0, colon);
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const std::string& listen, const std::vector<grpc::Service*>& services, RpcObserver observer) {
  const std::string host = HostOf(listen);
  if (host.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", listen, "' is no HOST:PORT to listen on (port 0 takes a free one)"));
  }
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  // With port reuse a second server on the port would start and take half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  int port = 0;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  if (observer) {
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
    factories.push_back(std::make_unique<ObservingInterceptorFactory>(std::move(observer)));
    builder.experimental().SetInterceptorCreators(std::move(factories));
  }
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", listen,
                     ": the port is in use, or the address is not one of this host; choose another "
                     "--listen (port 0 takes a free one)"));
  }
  return std::unique_ptr<RpcServer>(
      new RpcServer(std::move(server), absl::StrCat(host, ":", port)));
}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::SetServing(bool serving) {
  if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(serving);
}

void RpcServer::Shutdown(absl::Duration grace) {
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
}

}  // namespace parley
