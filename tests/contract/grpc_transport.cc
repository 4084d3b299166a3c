#include <gtest/gtest.h>

#include <vector>

#include "client/grpc_connector.h"
#include "client/local_connector.h"
#include "common/direct/direct_server.h"
#include "common/rpc/server.h"
#include "common/security/credentials_for_test.h"
#include "common/shared_memory/local_door.h"
#include "common/shared_memory/segment_heap.h"
#include "server/coordinator/service.h"
#include "server/parameter_shard/direct_methods.h"
#include "server/parameter_shard/local_guest.h"
#include "server/parameter_shard/service.h"
#include "tests/contract/cluster.h"

namespace parley {
namespace {

enum class Way { kGrpc, kDirect, kDirectTls, kLocal };

// Each service on a server of its own, on loopback; and each shard's direct connections or local
// door.
class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(Way way)
      : way_(way), credentials_(way == Way::kDirectTls ? OwnTlsCredentials() : nullptr) {
    connector_ = MakeGrpcConnector(IsDirect(), credentials_);
    if (way == Way::kLocal) connector_ = MakeLocalConnector(std::move(connector_));
  }
  ~GrpcTransport() override {
    connector_.reset();  // ends the calls, so that the servers need not wait for them
    doors_.clear();
    direct_.clear();
    coordinator_server_.reset();
    shard_servers_.clear();
  }

  std::string Serve(CoordinatorClient& coordinator) override {
    coordinator_ = std::make_unique<CoordinatorService>(coordinator, absl::Seconds(10));
    return Start(*coordinator_, coordinator_server_);
  }
  std::string Serve(LockedShard& shard) override {
    FindDirectReply found;
    if (IsDirect()) {
      auto direct = DirectServer::Start("127.0.0.1", 2, DirectShardMethods(&shard, nullptr),
                                        {credentials_, nullptr});
      EXPECT_TRUE(direct.ok()) << direct.status();
      found = (*direct)->Found();
      direct_.push_back(*std::move(direct));
    }
    shards_.push_back(std::make_unique<ShardService>(&shard, found));
    std::string address = Start(*shards_.back(), shard_servers_.emplace_back());
    if (way_ == Way::kLocal) {
      auto door = LocalGuest::OpenDoor({address, &shard, values_.get(), nullptr});
      EXPECT_TRUE(door.ok()) << door.status();
      doors_.push_back(*std::move(door));
    }
    return address;
  }
  std::shared_ptr<MemorySource> shard_memory() override {
    return way_ == Way::kLocal ? values_ : nullptr;
  }
  void CutCoordinator() override { coordinator_server_->Shutdown(absl::ZeroDuration()); }
  Connector& connector() override { return *connector_; }

 private:
  bool IsDirect() const { return way_ == Way::kDirect || way_ == Way::kDirectTls; }
  std::string Start(grpc::Service& service, std::unique_ptr<RpcServer>& server) const {
    auto started = RpcServer::Start("127.0.0.1:0", {&service}, nullptr, {credentials_, nullptr});
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
    return server->address();
  }

  const Way way_;
  const SharedCredentials credentials_;
  const std::shared_ptr<SegmentHeap> values_ = std::make_shared<SegmentHeap>(64 << 20);
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<CoordinatorService> coordinator_;
  std::vector<std::unique_ptr<ShardService>> shards_;
  std::unique_ptr<RpcServer> coordinator_server_;
  std::vector<std::unique_ptr<RpcServer>> shard_servers_;
  std::vector<std::unique_ptr<LocalDoor>> doors_;
  std::vector<std::unique_ptr<DirectServer>> direct_;
};

}  // namespace

std::unique_ptr<Transport> MakeGrpcTransport() {
  return std::make_unique<GrpcTransport>(Way::kGrpc);
}
std::unique_ptr<Transport> MakeDirectTransport() {
  return std::make_unique<GrpcTransport>(Way::kDirect);
}
std::unique_ptr<Transport> MakeDirectTlsTransport() {
  return std::make_unique<GrpcTransport>(Way::kDirectTls);
}
std::unique_ptr<Transport> MakeLocalTransport() {
  return std::make_unique<GrpcTransport>(Way::kLocal);
}

}  // namespace parley
