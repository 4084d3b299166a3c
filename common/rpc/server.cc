#include "common/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/observing_interceptor.h"
#include "common/rpc/recent_visitors.h"
#include "common/rpc/server_credentials.h"

namespace parley {
namespace {

// A stranger who has begun a handshake and says no more is gone after that.
constexpr absl::Duration kHandshake = absl::Seconds(10);

// Of an address that has a host.
uint16_t PortOf(const std::string& address) {
  int port = 0;
  (void)absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port);
  return static_cast<uint16_t>(port);
}

}  // namespace

std::string HostOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0) return "";
  if (!absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 || port > 65535) return "";
  return address.substr(0, colon);
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const std::string& listen, const std::vector<grpc::Service*>& services, RpcObserver observer,
    const Entry& entry) {
  const std::string host = HostOf(listen);
  if (host.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", listen, "' is no HOST:PORT to listen on (port 0 takes a free one)"));
  }
  const auto refusals = std::make_shared<Refusals>(entry.refused);
  const auto visitors = std::make_shared<RecentVisitors>(kHandshake);
  const bool tls = entry.credentials != nullptr && entry.credentials->tls();
  absl::StatusOr<std::unique_ptr<FrontDoor>> door =
      FrontDoor::Listen({.host = host,
                         .port = PortOf(listen),
                         .tls = tls,
                         .refused = [refusals](absl::string_view why, const std::string& peer) {
                           refusals->Tell(why, peer);
                         }});
  if (!door.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", listen, ": ", door.status().message(),
                     ": the port is in use, or the address is not one of this host; choose another "
                     "--listen (port 0 takes a free one)"));
  }
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  WakeGrpcWhenTheClockIsSet();
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(kHandshake)));
  // Clients ask whether it is still there (channel.cc), each on a connection of its own.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  Acceptor acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      ServerCredentialsFor(entry.credentials, refusals, visitors));
  for (grpc::Service* service : services) builder.RegisterService(service);
  if (observer) {
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
    factories.push_back(std::make_unique<ObservingInterceptorFactory>(std::move(observer)));
    builder.experimental().SetInterceptorCreators(std::move(factories));
  }
  std::unique_ptr<grpc::Server> started = builder.BuildAndStart();
  if (started == nullptr || acceptor == nullptr) {
    return absl::UnavailableError(absl::StrCat("gRPC gives no server for ", listen));
  }
  std::unique_ptr<RpcServer> server(new RpcServer(refusals, std::move(acceptor), std::move(started),
                                                  absl::StrCat(host, ":", (*door)->port())));
  server->door_ = *std::move(door);
  const absl::Status open =
      server->door_->Open([acceptor = server->acceptor_.get(), visitors](FileDescriptor connection,
                                                                         const std::string& peer) {
        visitors->Came(peer, SteadyNow());
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
        parameters.listener_fd = -1;
        parameters.fd = connection.Release();
        acceptor->HandleNewConnection(&parameters);
      });
  if (!open.ok()) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", listen, ": ", open.message()));
  }
  return server;
}

RpcServer::RpcServer(std::shared_ptr<Refusals> refusals, Acceptor acceptor,
                     std::unique_ptr<grpc::Server> server, std::string address)
    : refusals_(std::move(refusals)),
      acceptor_(std::move(acceptor)),
      server_(std::move(server)),
      address_(std::move(address)) {}

RpcServer::~RpcServer() {
  Shutdown(absl::ZeroDuration());
  refusals_->Stop();
}

void RpcServer::SetServing(bool serving) {
  if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(serving);
}

void RpcServer::Shutdown(absl::Duration grace) {
  door_.reset();
  server_->Shutdown(ToGrpcDeadline(SteadyNow() + grace));
}

}  // namespace parley
