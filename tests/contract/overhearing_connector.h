#ifndef PARLEY_TESTS_CONTRACT_OVERHEARING_CONNECTOR_H_
#define PARLEY_TESTS_CONTRACT_OVERHEARING_CONNECTOR_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/forwarding_shard.h"
#include "tests/contract/forwarding_connector.h"

namespace parley {

// Makes all calls over another connector, and keeps what workers tell shards with them.
// Thread-safe.
class OverhearingConnector final : public ForwardingConnector {
 public:
  explicit OverhearingConnector(Connector& to) : ForwardingConnector(to) {}
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    return std::make_shared<Shard>(ForwardingConnector::ConnectShard(address), *this);
  }

  // All of them, with copies of the gradients.
  std::vector<PushRequest> pushes() const {
    absl::MutexLock lock(&mu_);
    return pushes_;
  }
  // Slices that were lent to a shard on this machine, and those that were sent.
  size_t lent() const {
    absl::MutexLock lock(&mu_);
    return lent_;
  }
  size_t sent() const {
    absl::MutexLock lock(&mu_);
    return sent_;
  }
  size_t pulls() const {
    absl::MutexLock lock(&mu_);
    return pulls_;
  }
  // That had been made when the last Complete was.
  size_t pulls_before_complete() const {
    absl::MutexLock lock(&mu_);
    return pulls_before_complete_;
  }
  // Until all pushes have been answered.
  void AwaitAnswers() const {
    absl::MutexLock lock(&mu_, absl::Condition(this, &OverhearingConnector::AllAnswered));
  }
  // The last one.
  CompleteRequest complete() const {
    absl::MutexLock lock(&mu_);
    return complete_;
  }

 private:
  class Shard final : public ForwardingShard {
   public:
    Shard(std::shared_ptr<ShardClient> remote, OverhearingConnector& heard)
        : ForwardingShard(std::move(remote)), heard_(heard) {}
    void PushTensors(const TensorPush& push, absl::Time deadline, Done<PushReply> done) override {
      PushRequest request = push.head;
      for (const TensorSlice& slice : push.slices) CopyTo(slice, *request.add_slices());
      {
        absl::MutexLock lock(&heard_.mu_);
        heard_.pushes_.push_back(std::move(request));
        for (const TensorSlice& slice : push.slices) {
          ++(slice.loan.has_value() ? heard_.lent_ : heard_.sent_);
        }
      }
      remote()->PushTensors(
          push, deadline,
          [&heard = heard_, done = std::move(done)](const absl::StatusOr<PushReply>& reply) {
            done(reply);
            absl::MutexLock lock(&heard.mu_);
            ++heard.answered_;
          });
    }
    void PullTensors(const PullRequest& request, absl::Time deadline,
                     Done<TensorPull> done) override {
      {
        absl::MutexLock lock(&heard_.mu_);
        ++heard_.pulls_;
      }
      remote()->PullTensors(request, deadline, std::move(done));
    }
    void Complete(const CompleteRequest& request, absl::Time deadline,
                  Done<CompleteReply> done) override {
      {
        absl::MutexLock lock(&heard_.mu_);
        heard_.complete_ = request;
        heard_.pulls_before_complete_ = heard_.pulls_;
      }
      remote()->Complete(request, deadline, std::move(done));
    }

   private:
    OverhearingConnector& heard_;
  };

  bool AllAnswered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return answered_ == pushes_.size();
  }

  mutable absl::Mutex mu_;
  size_t lent_ ABSL_GUARDED_BY(mu_) = 0;
  size_t sent_ ABSL_GUARDED_BY(mu_) = 0;
  size_t pulls_ ABSL_GUARDED_BY(mu_) = 0;
  size_t pulls_before_complete_ ABSL_GUARDED_BY(mu_) = 0;
  size_t answered_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<PushRequest> pushes_ ABSL_GUARDED_BY(mu_);
  CompleteRequest complete_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_TESTS_CONTRACT_OVERHEARING_CONNECTOR_H_
