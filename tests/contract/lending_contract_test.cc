// What a worker on the shards' machine has lent to them, and when it takes it back.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/forwarding_shard.h"
#include "tests/contract/contract_test.h"
#include "tests/contract/forwarding_connector.h"
#include "tests/contract/overhearing_connector.h"

namespace parley {
namespace {

class LendingContract : public ContractTest {};
INSTANTIATE_TEST_SUITE_P(Over, LendingContract, testing::Values("Local"),
                         [](const auto& info) { return std::string(info.param); });

constexpr uint32_t kSecondOfBig = 1;  // slice

// Keeps the loans of what was pushed, and, while it is told to, what is answered to pulls of the
// large tensor's second slice.
class HoldingConnector final : public ForwardingConnector {
 public:
  explicit HoldingConnector(Connector& to) : ForwardingConnector(to) {}
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    return std::make_shared<Shard>(ForwardingConnector::ConnectShard(address), *this);
  }

  void Hold() {
    absl::MutexLock lock(&mu_);
    holds_ = true;
  }
  void LetGo() {
    std::vector<std::function<void()>> held;
    {
      absl::MutexLock lock(&mu_);
      holds_ = false;
      held.swap(held_);
    }
    for (const std::function<void()>& answer : held) answer();
  }
  size_t held() const {
    absl::MutexLock lock(&mu_);
    return held_.size();
  }
  bool AllStand() const {
    absl::MutexLock lock(&mu_);
    return std::all_of(loans_.begin(), loans_.end(),
                       [](const Loan& loan) { return loan.Stands(); });
  }
  size_t loans() const {
    absl::MutexLock lock(&mu_);
    return loans_.size();
  }
  void ForgetLoans() {
    absl::MutexLock lock(&mu_);
    loans_.clear();
  }

 private:
  class Shard final : public ForwardingShard {
   public:
    Shard(std::shared_ptr<ShardClient> remote, HoldingConnector& all)
        : ForwardingShard(std::move(remote)), all_(all) {}
    void PushTensors(const TensorPush& push, absl::Time deadline, Done<PushReply> done) override {
      {
        absl::MutexLock lock(&all_.mu_);
        for (const TensorSlice& slice : push.slices) {
          if (slice.loan.has_value()) all_.loans_.push_back(*slice.loan);
        }
      }
      remote()->PushTensors(push, deadline, std::move(done));
    }
    void PullTensors(const PullRequest& request, absl::Time deadline,
                     Done<TensorPull> done) override {
      if (std::count(request.slices().begin(), request.slices().end(), kSecondOfBig) == 0) {
        return remote()->PullTensors(request, deadline, std::move(done));
      }
      remote()->PullTensors(
          request, deadline,
          [&all = all_, done = std::move(done)](absl::StatusOr<TensorPull> pulled) {
            {
              absl::MutexLock lock(&all.mu_);
              if (all.holds_) {
                all.held_.push_back([done, pulled] { done(pulled); });
                return;
              }
            }
            done(std::move(pulled));
          });
    }

   private:
    HoldingConnector& all_;
  };

  mutable absl::Mutex mu_;
  bool holds_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::function<void()>> held_ ABSL_GUARDED_BY(mu_);
  std::vector<Loan> loans_ ABSL_GUARDED_BY(mu_);
};

// The shard that has not answered may still be adding that gradient up.
TEST_P(LendingContract, AGradientIsLentUntilAllNextValuesOfItsTensorAreHere) {
  auto cluster = MakeCluster(1, 2, "steps: 5 consistency { sync { reduction: SUM } }");
  HoldingConnector connector(cluster->transport().connector());
  cluster->RunWorkers(
      1,
      [&](Session& session) {
        // Of no buffer, for which PullAhead would wait with what it is pulled with.
        const std::vector<TensorSpec> model = {Model()[0]};
        ASSERT_TRUE(session.Register(model, 4000, 0).ok());
        ASSERT_TRUE(session.Initialize({session.gradient(0)}).ok());
        ASSERT_TRUE(session.Pull().ok());
        for (int step = 1; step <= 5; ++step) {
          ASSERT_TRUE(session.NextStep().has_value());
          if (step > 1) {
            ASSERT_TRUE(session.AwaitParameter(0).ok());
          }
          for (float& value : As<float>(session.gradient(0))) value = 1;
          connector.ForgetLoans();
          ASSERT_TRUE(session.Push(0).ok());
          if (step > 2) connector.Hold();
          ASSERT_TRUE(session.Complete(0).ok());
          ASSERT_TRUE(session.PullAhead().ok());
          if (step <= 2) continue;  // it knows by now that values are pulled ahead
          ASSERT_EQ(connector.loans(), 2u);
          ASSERT_TRUE(session.AwaitParameterUntil(0, sizeof(float)).ok());
          EXPECT_EQ(As<float>(session.parameter(0)).front(), -step);
          EXPECT_TRUE(connector.AllStand()) << "step " << step;
          connector.LetGo();
          ASSERT_TRUE(session.AwaitParameter(0).ok());
          EXPECT_EQ(As<float>(session.parameter(0)).back(), -step);
          EXPECT_FALSE(connector.AllStand());
        }
        ASSERT_TRUE(session.Pull().ok());
        ExpectTheEnd(session);
      },
      connector);
}

// Nobody awaits a buffer: PullAhead has. Its next value may be on its way to its shard when the
// last parameter comes, which forward does not use.
TEST_P(LendingContract, ABuffersNextValueIsNotTakenBackWhenTheLastParameterComes) {
  // In small messages: the buffer comes before what is held, and goes at once.
  auto cluster =
      MakeCluster(1, 2, "steps: 5 bucket_kib: 1 consistency { sync { reduction: SUM } }");
  HoldingConnector connector(cluster->transport().connector());
  cluster->RunWorkers(
      1,
      [&](Session& session) {
        std::vector<TensorSpec> model = {Model()[0], Model()[2]};
        model[1].add_shape(200);
        ASSERT_TRUE(session.Register(model, 4000, 0).ok());
        ASSERT_TRUE(session.Initialize({session.gradient(0), session.gradient(1)}).ok());
        ASSERT_TRUE(session.Pull().ok());
        for (int64_t step = 1; step <= 5; ++step) {
          ASSERT_TRUE(session.NextStep().has_value());
          connector.ForgetLoans();
          for (int64_t& value : As<int64_t>(session.gradient(1))) value = step;
          ASSERT_TRUE(session.Push(1).ok());
          ASSERT_EQ(connector.loans(), 1u);
          connector.LetGo();
          ASSERT_TRUE(session.AwaitParameter(0).ok());
          EXPECT_TRUE(connector.AllStand()) << "step " << step;
          if (step > 1) connector.Hold();  // it knows by now that values are pulled ahead
          ASSERT_TRUE(session.Complete(0).ok());
          ASSERT_TRUE(session.PullAhead().ok());
          EXPECT_EQ(As<int64_t>(session.parameter(1)).back(), step);
        }
        connector.LetGo();
        ASSERT_TRUE(session.Pull().ok());
        ExpectTheEnd(session);
      },
      connector);
}

// Else its shard would look at all of them before it decides the step.
TEST_P(LendingContract, CompleteGoesBeforeThePullsThatAreAskedAheadOfItsVerdict) {
  auto cluster = MakeCluster(1, 1, "steps: 4 consistency { sync { reduction: SUM } }");
  OverhearingConnector connector(cluster->transport().connector());
  cluster->RunWorkers(
      1,
      [&](Session& session) {
        ASSERT_TRUE(session.Register(Model(), 4000, 0).ok());
        std::vector<absl::Span<const std::byte>> values;
        for (size_t i = 0; i < Model().size(); ++i) values.push_back(session.gradient(i));
        ASSERT_TRUE(session.Initialize(values).ok());
        ASSERT_TRUE(session.Pull().ok());
        for (int step = 1; step <= 4; ++step) {
          ASSERT_TRUE(session.NextStep().has_value());
          for (size_t i = 0; i < values.size(); ++i) ASSERT_TRUE(session.Push(i).ok());
          const size_t before = connector.pulls();
          ASSERT_TRUE(session.Complete(0).ok());
          EXPECT_EQ(connector.pulls_before_complete(), before) << "step " << step;
          EXPECT_GT(connector.pulls(), before) << "step " << step;
          ASSERT_TRUE(session.PullAhead().ok());
          for (size_t i = 0; i < values.size(); ++i) ASSERT_TRUE(session.AwaitParameter(i).ok());
        }
        ExpectTheEnd(session);
      },
      connector);
}

// So many answers to pulls, from now on, show memory that has been written again by the time they
// come.
class OverwritingConnector final : public ForwardingConnector {
 public:
  using ForwardingConnector::ForwardingConnector;
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    return std::make_shared<Shard>(ForwardingConnector::ConnectShard(address), *this);
  }
  void Overwrite(int answers) { answers_ = answers; }
  int left() const { return answers_; }

 private:
  class Shard final : public ForwardingShard {
   public:
    Shard(std::shared_ptr<ShardClient> remote, OverwritingConnector& all)
        : ForwardingShard(std::move(remote)), all_(all) {}
    void PullTensors(const PullRequest& request, absl::Time deadline,
                     Done<TensorPull> done) override {
      remote()->PullTensors(
          request, deadline,
          [&all = all_, done = std::move(done)](absl::StatusOr<TensorPull> pulled) {
            if (pulled.ok() && !pulled->slices.empty() && all.answers_ > 0) {
              --all.answers_;
              for (TensorSlice& slice : pulled->slices) slice.loan = Loan{&all.count_, 1};
            }
            done(std::move(pulled));
          });
    }

   private:
    OverwritingConnector& all_;
  };

  std::atomic<int> answers_ = 0;
  std::atomic<uint64_t> count_ = 2;  // of memory that was lent at 1
};

TEST_P(LendingContract, ValuesThatAreWrittenAgainBeforeTheyAreReadArePulledAnew) {
  auto cluster = MakeCluster(1, 2, "steps: 6 consistency { sync { reduction: SUM } }");
  OverwritingConnector connector(cluster->transport().connector());
  cluster->RunWorkers(
      1,
      [&](Session& session) {
        StartTraining(session, 4000);
        for (int step = 1; step <= 6; ++step) {
          ASSERT_TRUE(session.NextStep().has_value());
          if (step > 1) {
            ASSERT_TRUE(session.AwaitParameter(0).ok());
          }
          for (float& value : As<float>(session.gradient(0))) value = 1;
          ASSERT_TRUE(session.Push(0).ok());
          connector.Overwrite(3);
          const auto verdict = session.Complete(0);
          ASSERT_TRUE(verdict.ok()) << verdict.status();
          EXPECT_EQ(verdict->outcome(), Verdict::APPLY);
          // Every second one ahead.
          const absl::Status pulled = step % 2 == 0 ? session.PullAhead() : session.Pull();
          ASSERT_TRUE(pulled.ok()) << pulled;
          ASSERT_TRUE(session.AwaitParameter(0).ok());
          EXPECT_EQ(connector.left(), 0);
          EXPECT_EQ(As<float>(session.parameter(0)).front(), -step);
          EXPECT_EQ(As<float>(session.parameter(0)).back(), -step);
        }
        ASSERT_TRUE(session.Pull().ok());
        ExpectTheEnd(session);
      },
      connector);
}

}  // namespace
}  // namespace parley
