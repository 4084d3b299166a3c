#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

using Places = std::vector<std::string>;

// "worker-1" for each place that the wait is on.
Places On(const Wait& wait) {
  Places places;
  for (const WaitedFor& on : wait.on()) {
    const std::string role = on.role() == SHARD    ? "shard-"
                             : on.role() == WORKER ? "worker-"
                                                   : "coordinator-";
    places.push_back(role + std::to_string(on.ordinal()));
  }
  return places;
}

TEST(ShardWaits, TheLeaderWaitsForTheContributorsThatHaveNotCompleted) {
  ShardCluster cluster(SummingJob(), MakeView({.shards = 2, .workers = 3}));
  for (uint32_t worker : {0, 2}) cluster.PushAll(worker, 1, 0, 1);
  auto complete = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  cluster.Advance(absl::Seconds(7));
  const std::vector<Wait> waits = cluster.leader().Waits(cluster.now());
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(On(waits[0]), (Places{"worker-1", "worker-2"}));
  EXPECT_EQ(waits[0].seconds(), 7);
  EXPECT_EQ(waits[0].step(), 1u);
  EXPECT_NE(waits[0].what().find("1 Complete, 0 Enter, 0 Pull"), std::string::npos);
}

TEST(ShardWaits, AnotherShardWaitsForGradientsAndForTheVerdict) {
  ShardCluster cluster(SummingJob(),
                       MakeView({.tensors = {{"a", 4}, {"b", 4}}, .shards = 2, .workers = 2}));
  cluster.PushAll(0, 1, 0, 1);
  std::vector<Wait> waits = cluster.shard(1).Waits(cluster.now());
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(On(waits[0]), Places{"worker-1"});
  EXPECT_EQ(On(waits[1]), Places{"shard-0"});
  cluster.PushAll(1, 1, 0, 1);
  waits = cluster.shard(1).Waits(cluster.now());
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(On(waits[0]), Places{"shard-0"});
}

TEST(ShardWaits, APlaceThatNobodyHasIsWaitedForByItsOrdinal) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}));
  cluster.SetView(WithNobodyAt(cluster.view(), 1));
  EXPECT_EQ(On(cluster.leader().Waits(cluster.now()).at(0)), (Places{"worker-0", "worker-1"}));
}

TEST(ShardWaits, UntilThereAreStartValuesTheFirstWorkerIsWaitedFor) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}), /*start=*/false);
  const std::vector<Wait> waits = cluster.leader().Waits(cluster.now());
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(On(waits[0]), Places{"worker-0"});
}

TEST(ShardWaits, AShardThatLoadsACheckpointIsAtWorkItself) {
  ClusterView view = MakeView({.workers = 2});
  view.set_start_from("/runs/step-00000007");
  ShardCluster cluster(SummingJob(), view, /*start=*/false);
  const std::vector<Wait> waits = cluster.leader().Waits(cluster.now());
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_TRUE(waits[0].on().empty());
}

TEST(ShardWaits, WhenAllStepsAreDecidedTheCoordinatorEndsTheJob) {
  JobConfig job = SummingJob();
  job.clear_epochs();
  job.set_steps(1);
  ClusterView view = MakeView({.shards = 2});
  view.set_total_steps(1);
  ShardCluster cluster(job, view);
  cluster.PushAll(0, 1, 0, 1);
  cluster.Complete(cluster.MakeComplete(0, 1, 0));
  cluster.Deliver();
  for (uint32_t shard : {0, 1}) {
    const std::vector<Wait> waits = cluster.shard(shard).Waits(cluster.now());
    ASSERT_EQ(waits.size(), 1u);
    EXPECT_EQ(On(waits[0]), Places{"coordinator-0"});
  }
}

TEST(ShardWaits, AShardOfAJobThatHasFailedWaitsForNothing) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}));
  {
    Replies replies;
    cluster.leader().Fail(FirstCause(), replies);
  }
  EXPECT_TRUE(cluster.leader().Waits(cluster.now()).empty());
}

}  // namespace
}  // namespace parley::testing
