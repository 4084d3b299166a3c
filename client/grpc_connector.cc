#include "client/grpc_connector.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/direct_link.h"
#include "client/direct_shard_client.h"
#include "client/grpc_coordinator_client.h"
#include "client/grpc_shard_client.h"
#include "client/open_calls.h"
#include "common/direct/direct_loops.h"
#include "common/direct/receive_buffers.h"
#include "common/direct/tls_context.h"
#include "common/usable_cores.h"

namespace parley {
namespace {

// Parameters that were pulled, and whose memory waits to be used again.
constexpr size_t kKeptBytes = 256 << 20;

class GrpcConnector final : public Connector {
 public:
  GrpcConnector(bool direct, SharedCredentials credentials)
      : credentials_(std::move(credentials)),
        tls_(TlsContextFor(credentials_)),
        direct_(direct && tls_.ok()) {}
  ~GrpcConnector() override {
    std::vector<std::weak_ptr<DirectLink>> links;
    {
      absl::MutexLock lock(&mu_);
      links.swap(links_);
    }
    for (const auto& link : links) {
      if (const auto here = link.lock()) here->Close();
    }
    loops_.End();  // their last answers may still make calls
    calls_->Close(absl::Seconds(5));
  }

  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) override {
    absl::MutexLock lock(&mu_);
    std::shared_ptr<CoordinatorClient>& client = coordinators_[address];
    if (client == nullptr) client = MakeGrpcCoordinatorClient(address, credentials_, calls_);
    return client;
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    absl::MutexLock lock(&mu_);
    GrpcShard& shard = shards_[address];
    if (shard.client == nullptr) shard = MakeGrpcShardClient(address, credentials_, calls_);
    if (!direct_) return shard.client;
    DirectLoop* const loop = loops_.Next();
    if (loop == nullptr) return shard.client;
    std::erase_if(links_, [](const auto& link) { return link.expired(); });
    const auto link =
        std::make_shared<DirectLink>(address, *loop, *tls_, buffers_, shard.find_direct);
    links_.push_back(link);
    return std::make_shared<DirectShardClient>(shard.client, link);
  }

 private:
  const SharedCredentials credentials_;
  const absl::StatusOr<SharedTlsContext> tls_;
  const bool direct_;
  const std::shared_ptr<OpenCalls> calls_ = std::make_shared<OpenCalls>();
  const std::shared_ptr<ReceiveBuffers> buffers_ = std::make_shared<ReceiveBuffers>(kKeptBytes);
  absl::Mutex mu_;
  // One for each address, whoever joins anew or follows the job into another epoch: a surviving
  // process's connections must not grow in number. They live until no call is left, so that no
  // channel is destroyed by a thread of its own callbacks.
  std::map<std::string, std::shared_ptr<CoordinatorClient>> coordinators_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, GrpcShard> shards_ ABSL_GUARDED_BY(mu_);
  std::vector<std::weak_ptr<DirectLink>> links_ ABSL_GUARDED_BY(mu_);
  DirectLoops loops_{LoopsFor(credentials_, /*plain=*/1, UsableCores())};
};

}  // namespace

std::unique_ptr<Connector> MakeGrpcConnector(bool direct, SharedCredentials credentials) {
  return std::make_unique<GrpcConnector>(direct, std::move(credentials));
}

}  // namespace parley
