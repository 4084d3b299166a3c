#include "client/grpc_connector.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/grpc_coordinator_client.h"
#include "client/grpc_shard_client.h"
#include "client/open_calls.h"

namespace parley {
namespace {

class GrpcConnector final : public Connector {
 public:
  ~GrpcConnector() override { calls_->Close(absl::Seconds(5)); }

  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) override {
    return Keep(MakeGrpcCoordinatorClient(address, calls_));
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    return Keep(MakeGrpcShardClient(address, calls_));
  }

 private:
  // Channels live until no call is left, so that none is destroyed by a thread of its own
  // callbacks.
  template <class Client>
  std::shared_ptr<Client> Keep(std::shared_ptr<Client> client) {
    absl::MutexLock lock(&mu_);
    clients_.push_back(client);
    return client;
  }

  const std::shared_ptr<OpenCalls> calls_ = std::make_shared<OpenCalls>();
  absl::Mutex mu_;
  std::vector<std::shared_ptr<void>> clients_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<Connector> MakeGrpcConnector() { return std::make_unique<GrpcConnector>(); }

}  // namespace parley
