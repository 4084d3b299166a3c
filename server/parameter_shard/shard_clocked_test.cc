// The shard in bounded and async (docs/clocked.md), one rule at a time.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/parameter_shard/clocked_fixture.h"

namespace parley::testing {
namespace {

// One shard with the slice `w` of 3 elements, a buffer, and workers that have all entered.
class ClockedShard {
 public:
  ClockedShard(const JobConfig& job, uint32_t workers, uint64_t samples = 1000)
      : cluster(job, ClockedView({.tensors = {{"w", 3}, {"stat", 2, true}}, .workers = workers},
                                 samples)) {
    for (uint32_t i = 0; i < workers; ++i) {
      auto entered = cluster.Enter(cluster.worker(i), i);
      EXPECT_TRUE(entered->has_value() && (*entered)->ok());
      leases.push_back(entered->has_value() ? (**entered)->lease() : Lease());
    }
  }

  PullRequest MakePull(uint32_t worker, uint64_t clock) {
    PullRequest request;
    *request.mutable_header() = cluster.worker(worker);
    request.set_clock(clock);
    request.set_contributor(worker);
    request.add_slices(0);
    return request;
  }
  // Of the worker's present clock, which must not wait: the values, and how many updates they hold.
  std::pair<Floats, uint64_t> Pull(uint32_t worker) {
    auto result = PullFor(cluster, MakePull(worker, leases[worker].clock()), 0);
    EXPECT_TRUE(result->has_value() && (*result)->ok());
    if (!result->has_value() || !(*result)->ok()) return {};
    const auto& slice = (**result)->slices[0];
    const absl::Span<const float> values = slice.values->as<float>();
    return {Floats(values.begin(), values.end()), slice.updates};
  }
  PushOutcome Push(uint32_t worker, const Floats& gradient, uint64_t seen, uint32_t slice = 0) {
    return OutcomeOf(cluster.shard(0).Push(
        PushOf(cluster.worker(worker), worker, 1, leases[worker].clock(), slice, gradient, seen)));
  }
  ShardCluster::CompleteResult Complete(uint32_t worker,
                                        CompleteRequest::Fate fate = CompleteRequest::APPLIED) {
    CompleteRequest request = CompletionOf(cluster.worker(worker), worker, 1, leases[worker]);
    request.set_fate(fate);
    auto result = cluster.Complete(request, absl::Seconds(30));
    if (result->has_value() && (*result)->ok()) leases[worker] = (**result)->lease();
    return result;
  }
  Floats Newest() { return Pull(0).first; }

  ShardCluster cluster;
  std::vector<Lease> leases;
};

TEST(ClockedShardTest, APushIsAppliedAtOnceAndOnce) {
  ClockedShard shard(AsyncJob(2), 2);
  EXPECT_EQ(shard.Push(1, {1, 2, 3}, 0), ADDED);
  EXPECT_EQ(shard.Newest(), (Floats{-1, -2, -3}));
  EXPECT_EQ(shard.Push(1, {1, 2, 3}, 0), DUPLICATE);
  EXPECT_EQ(shard.Newest(), (Floats{-1, -2, -3}));
  EXPECT_EQ(shard.Push(0, {1, 0, 0}, 0), ADDED);
  EXPECT_EQ(shard.Pull(0).second, 2u);
  EXPECT_EQ(VerdictOf(shard.Complete(1)).step(), 1u);
  EXPECT_EQ(VerdictOf(shard.Complete(0)).step(), 2u);
  ASSERT_EQ(shard.cluster.reported().size(), 2u);
  EXPECT_EQ(shard.cluster.reported()[0].shares(0).contributor(), 1u);
}

TEST(ClockedShardTest, ABoundedPullWaitsForTheFloorAndSaysForWhom) {
  ClockedShard shard(BoundedJob(1, 2), 2);
  shard.Complete(0);
  shard.Pull(0);  // clock 2, floor 0, bound 1
  shard.Complete(0);
  auto waiting = PullFor(shard.cluster, shard.MakePull(0, 3), 0, absl::Seconds(5));
  EXPECT_FALSE(waiting->has_value());
  shard.cluster.Advance(absl::Seconds(6));
  ASSERT_TRUE(waiting->has_value());
  EXPECT_EQ((*waiting)->status().code(), absl::StatusCode::kDeadlineExceeded);
  const std::string message((*waiting)->status().message());
  EXPECT_NE(message.find("for clock 3 "), std::string::npos) << message;
  EXPECT_NE(message.find("worker 1 at 10.0.1.1:1"), std::string::npos) << message;
  EXPECT_NE(message.find("is at clock 1"), std::string::npos) << message;
  waiting = PullFor(shard.cluster, shard.MakePull(0, 3), 0);
  shard.Complete(1);
  ASSERT_TRUE(waiting->has_value());
  EXPECT_TRUE((*waiting)->ok());
}

TEST(ClockedShardTest, DelayCompensationIsThePapersFormula) {
  JobConfig job = AsyncJob(2);
  const float lambda = 0.5F;
  job.mutable_consistency()->mutable_async()->set_delay_compensation(lambda);
  ClockedShard shard(job, 2);
  const Floats seen = shard.Pull(1).first;  // zeros
  shard.Pull(0);
  const Floats first = {1, -2, 3};
  const Floats second = {0.5F, 4, -1};
  EXPECT_EQ(shard.Push(0, first, 0), ADDED);
  // Pulled again for the same clock it is the same, since the gradient is of it.
  EXPECT_EQ(shard.Pull(1).first, seen);
  EXPECT_EQ(shard.Pull(1).second, 0u);
  EXPECT_EQ(shard.Push(1, second, 0), ADDED);
  shard.Complete(0);
  const Floats now = shard.Newest();
  for (size_t i = 0; i < 3; ++i) {
    const float here = 0 - first[i];
    const float g = second[i] + lambda * second[i] * second[i] * (here - 0);
    EXPECT_FLOAT_EQ(now[i], here - g) << i;
  }
}

TEST(ClockedShardTest, TheRateIsDividedByTheStaleness) {
  JobConfig job = AsyncJob(4);
  job.mutable_consistency()->mutable_async()->set_divide_rate_by_staleness(true);
  ClockedShard shard(job, 4);
  float expected = 0;
  for (uint32_t worker = 0; worker < 4; ++worker) {
    // All have seen the start: the staleness is 0, 1, 2, 3.
    EXPECT_EQ(shard.Push(worker, {6, 0, 0}, 0), ADDED);
    expected -= 6.0F / static_cast<float>(worker == 0 ? 1 : worker);
  }
  EXPECT_FLOAT_EQ(shard.Newest()[0], expected);
  const StalenessCounts& counts = shard.cluster.shard(0).counts().staleness;
  EXPECT_EQ(counts.sum, 6);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(counts.buckets[i], 1u) << i;
}

TEST(ClockedShardTest, WhatIsTooStaleIsRefusedAndItsSamplesComeAgain) {
  JobConfig job = AsyncJob(3);
  job.mutable_consistency()->mutable_async()->set_max_staleness(1);
  ClockedShard shard(job, 3);
  EXPECT_EQ(shard.Push(0, {1, 0, 0}, 0), ADDED);
  EXPECT_EQ(shard.Push(1, {1, 0, 0}, 0), ADDED);
  EXPECT_EQ(shard.Push(2, {1, 0, 0}, 0), STALE);
  EXPECT_EQ(shard.Push(2, {1, 0, 0}, 0), STALE) << "a repetition is refused again";
  EXPECT_EQ(shard.Newest()[0], -2);
  EXPECT_EQ(shard.cluster.shard(0).counts().pushes_stale, 2u);
  const Lease before = shard.leases[2];
  const auto refused = shard.Complete(2, CompleteRequest::REFUSED);
  EXPECT_EQ(VerdictOf(refused).outcome(), Verdict::STALE);
  EXPECT_EQ(shard.leases[2].ranges(0).begin(), before.ranges(0).begin());
  EXPECT_EQ(shard.leases[2].clock(), 2u);
  EXPECT_EQ(shard.cluster.shard(0).counts().contributions_refused, 1u);
  EXPECT_TRUE(shard.cluster.reported().empty());
  EXPECT_EQ(shard.Push(2, {1, 0, 0}, 2), ADDED);
}

TEST(ClockedShardTest, BuffersAreThoseOfTheLowestOrdinal) {
  ClockedShard shard(AsyncJob(2), 2);
  EXPECT_EQ(shard.Push(1, {7, 7}, 0, 1), ADDED) << "acknowledged, and ignored";
  PullRequest pull = shard.MakePull(0, 1);
  pull.set_slices(0, 1);
  auto values = PullFor(shard.cluster, pull, 0);
  EXPECT_EQ((**values)->slices[0].values->as<float>()[0], 0);
  EXPECT_EQ(shard.Push(0, {5, 5}, 0, 1), ADDED);
  values = PullFor(shard.cluster, pull, 0);
  EXPECT_EQ((**values)->slices[0].values->as<float>()[0], 5);
}

TEST(ClockedShardTest, TheLearningRateGoesByUpdatesDividedByWorkers) {
  JobConfig job = AsyncJob(2);
  job.mutable_learning_rate()->mutable_step_decay()->set_every_steps(1);
  job.mutable_learning_rate()->mutable_step_decay()->set_gamma(0.5);
  ClockedShard shard(job, 2);
  Floats got;
  float before = 0;
  for (const uint32_t worker : {0, 1, 0, 1}) {
    shard.Push(worker, {8, 0, 0}, 0);
    shard.Complete(worker);
    const float now = shard.Newest()[0];
    got.push_back(before - now);
    before = now;
  }
  EXPECT_EQ(got, (Floats{8, 8, 4, 4}));
}

TEST(ClockedShardTest, ABarrierNamesAVersionThatLaterPushesDoNotChange) {
  ClockedShard shard(AsyncJob(1, 2), 1, /*samples=*/2);
  shard.Push(0, {1, 1, 1}, 0);
  shard.Complete(0);
  EXPECT_EQ(shard.leases[0].version(), 1u);
  EXPECT_EQ(shard.leases[0].data_epoch(), 1u);
  EXPECT_EQ(shard.cluster.shard(0).version(), 1u);
  EXPECT_TRUE(shard.cluster.shard(0).Snapshot(1).ok());
  shard.Push(0, {1, 1, 1}, 1);
  EXPECT_EQ(shard.cluster.Values("w", 1), (Floats{-1, -1, -1}));
  EXPECT_EQ(shard.Newest(), (Floats{-2, -2, -2}));
  EXPECT_EQ(shard.cluster.shard(0).Snapshot(1).status().code(), absl::StatusCode::kAborted);
  shard.Complete(0);
  EXPECT_EQ(shard.leases[0].clock(), 0u) << "the job is done";
  EXPECT_EQ(shard.leases[0].version(), 2u);
  EXPECT_TRUE(shard.cluster.shard(0).Snapshot(2).ok());
  // Who has not evaluated the former one by now is too late for it, and goes on.
  const auto gone = shard.cluster.Pull(0, 0, 1);
  ASSERT_TRUE(gone->has_value());
  EXPECT_EQ((*gone)->status().code(), absl::StatusCode::kOutOfRange) << (*gone)->status();
}

TEST(ClockedShardTest, AReplacementsPushesAreNewOnesAndItsPredecessorsAreFenced) {
  ClockedShard shard(AsyncJob(1), 1);
  EXPECT_EQ(shard.Push(0, {1, 0, 0}, 0), ADDED);
  const ClusterView former = shard.cluster.view();
  const ClusterView next = WithAttemptAt(former, 0, 77);
  shard.cluster.SetView(next);
  EXPECT_EQ(shard.cluster.shard(0).counts().ranges_cut, 1u);
  const auto late =
      shard.cluster.shard(0).Push(PushOf(HeaderOf(former, 1), 0, 1, 2, 0, {1, 0, 0}, 1));
  EXPECT_EQ(late.status().code(), absl::StatusCode::kAborted);
  const auto entered = shard.cluster.Enter(HeaderOf(next, 77), 0);
  ASSERT_TRUE(entered->has_value());
  ASSERT_TRUE((*entered)->ok()) << (*entered)->status();
  const uint32_t attempt = (**entered)->attempt();
  EXPECT_EQ(attempt, next.view_epoch());
  EXPECT_EQ((**entered)->lease().clock(), 1u);
  EXPECT_EQ((**entered)->lease().ranges(0).begin(), 0u) << "the samples given back come first";
  EXPECT_EQ(OutcomeOf(shard.cluster.shard(0).Push(
                PushOf(HeaderOf(next, 77), 0, attempt, 1, 0, {1, 0, 0}, 1))),
            ADDED);
  EXPECT_EQ(shard.cluster.shard(0)
                .Push(PushOf(HeaderOf(next, 77), 0, 1, 2, 0, {1, 0, 0}, 1))
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ClockedShardTest, NothingSentIsNoCut) {
  ClockedShard shard(AsyncJob(1), 1);
  shard.cluster.SetView(WithAttemptAt(shard.cluster.view(), 0, 77));
  EXPECT_EQ(shard.cluster.shard(0).counts().ranges_cut, 0u);
}

// What is told of them are counters: a smaller number would be taken for a very large step.
TEST(ClockedShardTest, CountsGoOnWhereTheJobGoesBack) {
  ClockedShard shard(AsyncJob(1, 2), 1, /*samples=*/2);
  Shard& leader = shard.cluster.shard(0);
  shard.Push(0, {1, 0, 0}, 0);
  shard.cluster.SetView(WithAttemptAt(shard.cluster.view(), 0, 77));
  ASSERT_EQ(leader.counts().ranges_cut, 1u);
  ASSERT_EQ(leader.counts().updates, 1u);

  ClusterView next = ClockedView({.view_epoch = 3}, 2);
  next.set_job_epoch(2);
  shard.cluster.SetView(next);
  shard.cluster.GiveStartValues();
  EXPECT_EQ(leader.counts().ranges_cut, 1u);
  EXPECT_EQ(leader.counts().updates, 1u);
  EXPECT_EQ(leader.counts().staleness.buckets[0], 1u);
  const auto entered = shard.cluster.Enter(HeaderOf(next, 1), 0);
  ASSERT_TRUE(entered->has_value() && (*entered)->ok());
  EXPECT_EQ(OutcomeOf(leader.Push(PushOf(HeaderOf(next, 1), 0, 1, 1, 0, {1, 0, 0, 0}, 0))), ADDED);
  EXPECT_EQ(leader.counts().updates, 2u);
  EXPECT_EQ(leader.counts().staleness.buckets[0], 2u);
  shard.cluster.SetView(WithAttemptAt(next, 0, 78));
  EXPECT_EQ(leader.counts().ranges_cut, 2u);
}

TEST(ClockedShardTest, CallsOfTheOtherModeAreRefused) {
  ClockedShard shard(AsyncJob(1), 1);
  DecideRequest decide;
  *decide.mutable_header() = HeaderOf(shard.cluster.view(), 101);
  Replies replies;
  EXPECT_EQ(shard.cluster.shard(0).Decide(decide, shard.cluster.now(), replies).status().code(),
            absl::StatusCode::kInvalidArgument);
  ShardCluster sync(SummingJob(), MakeView({}));
  AdvanceRequest advance;
  *advance.mutable_header() = HeaderOf(sync.view(), 101);
  EXPECT_EQ(sync.shard(0).Advance(advance, sync.now(), replies).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace parley::testing
