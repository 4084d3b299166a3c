#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/forwarding_coordinator.h"
#include "common/clock/steady_now.h"
#include "server/parameter_shard/in_process.h"
#include "tests/contract/cluster.h"

namespace parley {
namespace {

// The coordinator, as long as it can be reached.
class Reachable final : public ForwardingCoordinator<Reachable> {
 public:
  explicit Reachable(CoordinatorClient& to) : to_(to) {}
  void Cut() {
    absl::MutexLock lock(&mu_);
    cut_ = true;
  }

  template <class Request, class Reply>
  void Forward(CoordinatorMethod<Request, Reply> method, const Request& request,
               absl::Time deadline, Done<Reply> done) {
    if (cut()) return done(absl::UnavailableError("in-process:0: nobody there"));
    (to_.*method)(request, deadline, std::move(done));
  }

 private:
  bool cut() const {
    absl::MutexLock lock(&mu_);
    return cut_;
  }

  CoordinatorClient& to_;
  mutable absl::Mutex mu_;
  bool cut_ ABSL_GUARDED_BY(mu_) = false;
};

class InProcessTransport final : public Transport, public Connector {
 public:
  std::string Serve(CoordinatorClient& coordinator) override {
    coordinator_ = std::make_shared<Reachable>(coordinator);
    return "in-process:1";
  }
  std::string Serve(LockedShard& shard) override {
    absl::MutexLock lock(&mu_);
    const std::string address = absl::StrCat("in-process:", 2 + shards_.size());
    shards_[address] = &shard;
    return address;
  }
  void CutCoordinator() override { coordinator_->Cut(); }
  Connector& connector() override { return *this; }

  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string&) override {
    return coordinator_;
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    absl::MutexLock lock(&mu_);
    return MakeInProcessShardClient(shards_.at(address), [] { return SteadyNow(); });
  }

 private:
  std::shared_ptr<Reachable> coordinator_;
  absl::Mutex mu_;
  std::map<std::string, LockedShard*> shards_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<Transport> MakeInProcessTransport() {
  return std::make_unique<InProcessTransport>();
}

}  // namespace parley
