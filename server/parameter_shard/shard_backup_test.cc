// Steps that do not wait for all contributors.
#include <gtest/gtest.h>

#include <vector>

#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

JobConfig WithBackup(JobConfig job, uint32_t backup) {
  job.mutable_consistency()->mutable_sync()->set_backup(backup);
  return job;
}

TEST(ShardTest, TheMeanIsOverTheWeightsOfThoseThatCount) {
  ShardCluster cluster(WithBackup(MeanJob(), 1), MakeView({.workers = 3}));
  for (const uint32_t worker : {1, 0, 2}) {
    cluster.PushAll(worker, 1, 0, worker == 1 ? 100 : 3);  // the slow one's is there, in part
  }
  cluster.Complete(cluster.MakeComplete(2, 1, 0, 1));
  const auto second = cluster.Complete(cluster.MakeComplete(0, 1, 0, 0.5));
  EXPECT_EQ(VerdictOf(second).total_weight(), 1.5);
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -4));
  const auto late = cluster.Complete(cluster.MakeComplete(1, 1, 0, 1));
  EXPECT_EQ(VerdictOf(late).outcome(), Verdict::STALE);
  EXPECT_EQ(VerdictOf(late).step(), 1u);
  EXPECT_EQ(VerdictOf(cluster.Complete(cluster.MakeComplete(0, 1, 0, 0.5))).outcome(),
            Verdict::APPLY);
}

TEST(ShardTest, OneThatIsLateWhileTheOthersNormsAreAskedForIsAnsweredWithThem) {
  JobConfig job = WithBackup(SummingJob(), 1);
  job.mutable_optimizer()->set_clip_norm(1e30);
  ShardCluster cluster(job, MakeView({.tensors = {{"a", 3}, {"b", 5}}, .shards = 2, .workers = 3}));
  for (const uint32_t worker : {0, 1}) {
    cluster.PushAll(worker, 1, 0, 1);
    cluster.Complete(cluster.MakeComplete(worker, 1, 0));
  }
  EXPECT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(2, 1, 0, 0, Floats(3, 7)))), STALE);
  EXPECT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(2, 1, 0, 1, Floats(5, 7)))), ADDED);
  const auto late = cluster.Complete(cluster.MakeComplete(2, 1, 0));
  EXPECT_FALSE(late->has_value());
  cluster.Deliver();
  EXPECT_EQ(VerdictOf(late).outcome(), Verdict::STALE);
  EXPECT_EQ(cluster.Values("a", 1), Floats(3, -2));
  EXPECT_EQ(cluster.Values("b", 1), Floats(5, -2));
  // It goes on with the open step.
  const auto entered = cluster.Enter(cluster.worker(2), 2);
  ASSERT_TRUE(entered->has_value() && (*entered)->ok());
  EXPECT_EQ((**entered)->step(), 2u);
}

TEST(ShardTest, OneThatIsVeryLateIsToldSoAsWell) {
  ShardCluster cluster(WithBackup(SummingJob(), 1), MakeView({.workers = 2}));
  for (uint64_t step = 1; step <= 200; ++step) {
    cluster.PushAll(0, step, 0, 1);
    cluster.Complete(cluster.MakeComplete(0, step, 0));
  }
  EXPECT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(1, 1, 0, 0, Floats(4, 7)))), STALE);
  EXPECT_EQ(VerdictOf(cluster.Complete(cluster.MakeComplete(1, 1, 0))).outcome(), Verdict::STALE);
  const auto passed = cluster.Pull(1, 0, 1);
  ASSERT_TRUE(passed->has_value());
  EXPECT_TRUE(absl::IsOutOfRange((*passed)->status())) << (*passed)->status();
  EXPECT_EQ(cluster.Values("w", 200), Floats(4, -200));
}

// 3 samples for each of 3 contributors, of which one does not count: an epoch takes 2 steps.
TEST(ShardTest, TheVersionThatEndsADataEpochIsKeptUntilTheNextOne) {
  JobConfig job = WithBackup(SummingJob(), 1);
  job.mutable_data()->set_batch(3);
  ClusterView view = MakeView({.workers = 3});
  view.set_training_samples(12);
  view.set_test_samples(100);
  ShardCluster cluster(job, view);
  const auto step = [&](uint64_t number, uint64_t epoch) {
    const uint64_t begin = number % 2 == 1 ? 0 : 6;
    for (const uint32_t worker : {0, 1}) {
      cluster.PushAll(worker, number, 0, 1);
      CompleteRequest complete = cluster.MakeComplete(worker, number, 0);
      complete.set_data_epoch(epoch);
      SampleRange& range = *complete.mutable_share()->add_ranges();
      range.set_begin(begin + 3 * worker);
      range.set_end(begin + 3 * worker + 3);
      cluster.Complete(complete);
    }
  };
  step(1, 0);
  const auto before = cluster.Enter(cluster.worker(2), 2);
  EXPECT_FALSE((**before)->has_evaluation());
  for (uint64_t number = 2; number <= 3; ++number) step(number, number / 3);
  ASSERT_EQ(cluster.reported().size(), 3u);
  EXPECT_FALSE(cluster.reported()[0].has_evaluation());
  EXPECT_TRUE(cluster.reported()[1].has_evaluation());
  EXPECT_FALSE(cluster.reported()[2].has_evaluation());
  const auto late = cluster.Enter(cluster.worker(2), 2);
  const EvaluationOrder& order = (**late)->evaluation();
  EXPECT_EQ(order.version(), 2u);
  EXPECT_EQ(order.epoch(), 1u);
  EXPECT_EQ(order.contributors_size(), 3);
  EXPECT_EQ(cluster.Values("w", 2), Floats(4, -4));
  EXPECT_EQ(cluster.Values("w", 3), Floats(4, -6));
  step(4, 1);
  EXPECT_EQ(cluster.Values("w", 4), Floats(4, -8));
  step(5, 2);
  EXPECT_EQ(cluster.Values("w", 4), Floats(4, -8));
  EXPECT_TRUE(absl::IsOutOfRange((*cluster.Pull(2, 0, 2))->status()));
  EXPECT_TRUE(absl::IsOutOfRange((*cluster.Pull(2, 0, 3))->status()));
}

}  // namespace
}  // namespace parley::testing
