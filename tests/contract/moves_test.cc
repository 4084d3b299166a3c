// What a worker's heartbeats tell of its getting on.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/forwarding_coordinator.h"
#include "client/forwarding_shard.h"
#include "tests/contract/contract_test.h"
#include "tests/contract/forwarding_connector.h"

namespace parley {
namespace {

// Makes all calls over another connector; hears what a worker's heartbeats tell, and can hold the
// shards' answers to its pulls.
class PacingConnector final : public ForwardingConnector {
 public:
  explicit PacingConnector(Connector& to) : ForwardingConnector(to) {}
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) override {
    return std::make_shared<Coordinator>(ForwardingConnector::ConnectCoordinator(address), *this);
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    return std::make_shared<Shard>(ForwardingConnector::ConnectShard(address), address, *this);
  }

  // HeartbeatRequest.moves, with all that has happened before this call.
  uint64_t Moves() {
    absl::MutexLock lock(&mu_);
    // The next one may have been made before.
    for (const uint64_t next = heartbeats_ + 2; heartbeats_ < next;) changed_.Wait(&mu_);
    return moves_;
  }
  void HoldPulls() {
    absl::MutexLock lock(&mu_);
    holds_ = true;
  }
  // Until answers of so many shards are held.
  void AwaitHeld(size_t shards) {
    absl::MutexLock lock(&mu_);
    while (held_.size() < shards) changed_.Wait(&mu_);
  }
  // Those of one of them come, now and from now on.
  void LetOneAnswer() {
    std::vector<std::function<void()>> answers;
    {
      absl::MutexLock lock(&mu_);
      answers = std::move(held_.begin()->second);
      answering_.insert(held_.begin()->first);
      held_.erase(held_.begin());
    }
    for (const auto& answer : answers) answer();
  }
  void LetAllAnswer() {
    {
      absl::MutexLock lock(&mu_);
      holds_ = false;
    }
    while (HoldsAny()) LetOneAnswer();
  }

 private:
  class Coordinator final : public ForwardingCoordinator<Coordinator> {
   public:
    Coordinator(std::shared_ptr<CoordinatorClient> to, PacingConnector& owner)
        : to_(std::move(to)), owner_(owner) {}
    template <class Request, class Reply>
    void Forward(CoordinatorMethod<Request, Reply> method, const Request& request,
                 absl::Time deadline, Done<Reply> done) {
      (to_.get()->*method)(request, deadline, std::move(done));
    }
    void Heartbeat(const HeartbeatRequest& request, absl::Time deadline,
                   Done<HeartbeatReply> done) override {
      {
        absl::MutexLock lock(&owner_.mu_);
        ++owner_.heartbeats_;
        owner_.moves_ = request.moves();
        owner_.changed_.SignalAll();
      }
      to_->Heartbeat(request, deadline, std::move(done));
    }

   private:
    const std::shared_ptr<CoordinatorClient> to_;
    PacingConnector& owner_;
  };

  class Shard final : public ForwardingShard {
   public:
    Shard(std::shared_ptr<ShardClient> to, std::string address, PacingConnector& owner)
        : ForwardingShard(std::move(to)), address_(std::move(address)), owner_(owner) {}
    void PullTensors(const PullRequest& request, absl::Time deadline,
                     Done<TensorPull> done) override {
      remote()->PullTensors(request, deadline,
                            [&owner = owner_, address = address_,
                             done = std::move(done)](const absl::StatusOr<TensorPull>& reply) {
                              owner.Answer(address, [done, reply] { done(reply); });
                            });
    }

   private:
    const std::string address_;
    PacingConnector& owner_;
  };

  void Answer(const std::string& address, std::function<void()> answer) {
    {
      absl::MutexLock lock(&mu_);
      if (holds_ && answering_.count(address) == 0) {
        held_[address].push_back(std::move(answer));
        changed_.SignalAll();
        return;
      }
    }
    answer();
  }
  bool HoldsAny() const {
    absl::MutexLock lock(&mu_);
    return !held_.empty();
  }

  mutable absl::Mutex mu_;
  absl::CondVar changed_;
  uint64_t heartbeats_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t moves_ ABSL_GUARDED_BY(mu_) = 0;
  bool holds_ ABSL_GUARDED_BY(mu_) = false;
  std::set<std::string> answering_ ABSL_GUARDED_BY(mu_);  // addresses, though it holds
  std::map<std::string, std::vector<std::function<void()>>> held_ ABSL_GUARDED_BY(mu_);
};

// What keeps the coordinator from ending a job in which all wait for each other
// (coordinator_failure_test), however slow it is: a wait that ends, a push, and each answer of many
// that one wait is for.
TEST(Moves, AreWhateverAWorkerGetsOnBy) {
  constexpr uint32_t kShards = 6;
  LocalCluster cluster(
      MakeInProcessTransport(),
      ContractJob(1, kShards, "steps: 100 consistency { sync { reduction: SUM } }"));
  PacingConnector pacing(cluster.transport().connector());
  cluster.RunWorkers(
      1,
      [&](Session& session) {
        std::vector<TensorSpec> tensors(kShards);  // too large to come with the verdict
        for (uint32_t i = 0; i < kShards; ++i) {
          tensors[i].set_name(absl::StrCat("w", i));
          tensors[i].set_dtype(F32);
          tensors[i].add_shape(80000);
        }
        ASSERT_TRUE(session.Register(tensors, 4000, 0).ok());
        std::vector<absl::Span<const std::byte>> zeros;
        for (uint32_t i = 0; i < kShards; ++i) zeros.push_back(session.gradient(i));
        ASSERT_TRUE(session.Initialize(zeros).ok());
        ASSERT_TRUE(session.Pull().ok());
        ASSERT_TRUE(session.NextStep().has_value());

        uint64_t moves = pacing.Moves();
        EXPECT_EQ(pacing.Moves(), moves) << "that time goes on is none";
        ASSERT_TRUE(session.AwaitPeers("another", [] { return true; }).ok());
        const uint64_t waited = pacing.Moves();
        EXPECT_GT(waited, moves);
        // Its answer is not looked at before somebody waits.
        ASSERT_TRUE(session.Push(0).ok());
        EXPECT_GT(pacing.Moves(), waited);

        pacing.HoldPulls();
        ASSERT_TRUE(session.Complete(0).ok());
        std::thread answers([&] {
          pacing.AwaitHeld(kShards);
          moves = pacing.Moves();
          for (uint32_t i = 1; i < kShards; ++i) {
            pacing.LetOneAnswer();
            const uint64_t now = pacing.Moves();
            EXPECT_GT(now, moves) << "answer " << i;
            moves = now;
          }
          pacing.LetAllAnswer();
        });
        EXPECT_TRUE(session.Pull().ok());
        answers.join();
      },
      pacing);
}

}  // namespace
}  // namespace parley
