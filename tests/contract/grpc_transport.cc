#include <gtest/gtest.h>

#include <vector>

#include "client/grpc_connector.h"
#include "common/rpc/server.h"
#include "server/coordinator/service.h"
#include "server/parameter_shard/service.h"
#include "tests/contract/cluster.h"

namespace parley {
namespace {

// Each service on a server of its own, on loopback.
class GrpcTransport final : public Transport {
 public:
  ~GrpcTransport() override {
    connector_.reset();  // ends the calls, so that the servers need not wait for them
    coordinator_server_.reset();
    shard_servers_.clear();
  }

  std::string Serve(CoordinatorClient& coordinator) override {
    coordinator_ = std::make_unique<CoordinatorService>(coordinator, absl::Seconds(10));
    return Start(*coordinator_, coordinator_server_);
  }
  std::string Serve(LockedShard& shard) override {
    shards_.push_back(std::make_unique<ShardService>(&shard));
    return Start(*shards_.back(), shard_servers_.emplace_back());
  }
  void CutCoordinator() override { coordinator_server_->Shutdown(absl::ZeroDuration()); }
  Connector& connector() override { return *connector_; }

 private:
  static std::string Start(grpc::Service& service, std::unique_ptr<RpcServer>& server) {
    auto started = RpcServer::Start("127.0.0.1:0", {&service}, nullptr);
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
    return server->address();
  }

  std::unique_ptr<Connector> connector_ = MakeGrpcConnector();
  std::unique_ptr<CoordinatorService> coordinator_;
  std::vector<std::unique_ptr<ShardService>> shards_;
  std::unique_ptr<RpcServer> coordinator_server_;
  std::vector<std::unique_ptr<RpcServer>> shard_servers_;
};

}  // namespace

std::unique_ptr<Transport> MakeGrpcTransport() { return std::make_unique<GrpcTransport>(); }

}  // namespace parley
