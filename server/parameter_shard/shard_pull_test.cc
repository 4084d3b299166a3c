#include <gtest/gtest.h>

#include <cstdint>

#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

TEST(ShardTest, OnlyContributor0InitializesAndOnlyOnce) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}), /*start=*/false);
  InitializeRequest request;
  *request.mutable_header() = cluster.worker(1);
  *request.add_slices() = cluster.MakePush(0, 1, 0, 0, {1, 2, 3, 4}).slices(0);
  const auto initialize = [&] {
    Replies replies;
    return cluster.shard(0).Initialize(request, cluster.now(), replies).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(initialize()));
  auto parked = cluster.Pull(1, 0, 0);
  EXPECT_FALSE(parked->has_value());
  EXPECT_TRUE(
      absl::IsUnavailable(cluster.Push(cluster.MakePush(1, 1, 0, 0, {1, 1, 1, 1})).status()));
  *request.mutable_header() = cluster.worker(0);
  EXPECT_EQ(initialize(), absl::OkStatus());
  EXPECT_TRUE(parked->has_value());
  request.mutable_slices(0)->set_data(BytesOf({9, 9, 9, 9}));
  EXPECT_EQ(initialize(), absl::OkStatus());
  EXPECT_EQ(cluster.Values("w", 0), Floats({1, 2, 3, 4}));
}

TEST(ShardTest, AReaderKeepsItsVersionWhileTheNextOneIsMade) {
  ShardCluster cluster(SummingJob(), MakeView({}));
  const auto step = [&](uint64_t number) {
    cluster.PushAll(0, number, 0, 1);
    cluster.Complete(cluster.MakeComplete(0, number, 0));
  };
  auto held = cluster.Pull(0, 0, 0);
  step(1);
  EXPECT_EQ(cluster.Values("w", 0), Floats(4, 0));  // held, so still to be had
  EXPECT_EQ((**held)->slices[0].values->as<float>()[0], 0);
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -1));
  held->reset();
  step(2);
  auto gone = cluster.Pull(0, 0, 0);
  ASSERT_TRUE(gone->has_value());
  EXPECT_TRUE(absl::IsOutOfRange((*gone)->status()));
}

TEST(ShardTest, AVersionBeyondTheLastStepIsRefusedAtOnce) {
  JobConfig job = SummingJob();
  job.set_steps(10);
  ShardCluster cluster(job, MakeView({}));
  auto result = cluster.Pull(0, 0, 11);
  ASSERT_TRUE(result->has_value());
  EXPECT_TRUE(absl::IsInvalidArgument((*result)->status()));
  EXPECT_FALSE(cluster.Pull(0, 0, 10)->has_value());
}

TEST(ShardTest, AJobThatCountsEpochsMayTakeMoreStepsThanWithAllItsWorkers) {
  JobConfig job = SummingJob();
  job.set_epochs(1);
  ClusterView view = MakeView({});
  view.set_total_steps(10);
  ShardCluster cluster(job, view);
  EXPECT_FALSE(cluster.Pull(0, 0, 11)->has_value());
}

}  // namespace
}  // namespace parley::testing
