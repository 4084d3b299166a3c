#include "client/grpc_connector.h"

#include "client/grpc_coordinator_client.h"
#include "client/grpc_shard_client.h"
#include "client/open_calls.h"

namespace parley {
namespace {

class GrpcConnector final : public Connector {
 public:
  ~GrpcConnector() override { calls_->Close(absl::Seconds(5)); }

  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) override {
    return MakeGrpcCoordinatorClient(address, calls_);
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    return MakeGrpcShardClient(address, calls_);
  }

 private:
  const std::shared_ptr<OpenCalls> calls_ = std::make_shared<OpenCalls>();
};

}  // namespace

std::unique_ptr<Connector> MakeGrpcConnector() { return std::make_unique<GrpcConnector>(); }

}  // namespace parley
