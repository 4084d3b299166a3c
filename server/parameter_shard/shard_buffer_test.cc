// Buffers (batch normalisation's statistics), and the rate that follows the workers: what a verdict
// says beside the sum.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

constexpr uint32_t kTrained = 0;
constexpr uint32_t kBuffer = 1;

ClusterView ViewOf(uint32_t workers) {
  return MakeView({.tensors = {{"w", 2}, {"mean", 2, /*buffer=*/true}}, .workers = workers});
}

// A step in which worker W's gradient and buffer are W + 1, with these weights.
void Step(ShardCluster& cluster, uint64_t step, const std::vector<double>& weights) {
  for (uint32_t worker = 0; worker < weights.size(); ++worker) {
    const Floats values(2, static_cast<float>(worker + 1));
    for (const uint32_t slice : {kTrained, kBuffer}) {
      if (!(weights[worker] > 0)) continue;
      const auto pushed = cluster.Push(cluster.MakePush(worker, step, 0, slice, values));
      ASSERT_TRUE(pushed.ok()) << pushed.status();
    }
  }
  for (uint32_t worker = 0; worker < weights.size(); ++worker) {
    CompleteRequest complete = cluster.MakeComplete(worker, step, 0, weights[worker]);
    if (!(weights[worker] > 0)) {
      complete.add_none(kTrained);
      complete.add_none(kBuffer);
    }
    cluster.Complete(complete);
  }
}

TEST(ShardBuffers, AreThoseOfTheFirstWithData) {
  ShardCluster cluster(MeanJob(), ViewOf(3));
  Step(cluster, 1, {1, 1, 1});
  EXPECT_EQ(cluster.Values("mean", 1), Floats({1, 1}));
  Step(cluster, 2, {0, 0.5, 1});
  EXPECT_EQ(cluster.Values("mean", 2), Floats({2, 2}));
}

TEST(ShardBuffers, OrTheMeanOfThoseWithData) {
  JobConfig job = MeanJob();
  job.mutable_consistency()->mutable_sync()->set_buffers(AVERAGE);
  ShardCluster cluster(job, ViewOf(3));
  Step(cluster, 1, {1, 1, 1});
  EXPECT_EQ(cluster.Values("mean", 1), Floats({2, 2}));
  Step(cluster, 2, {0, 0.5, 1});
  EXPECT_EQ(cluster.Values("mean", 2), Floats(2, static_cast<float>(4.0 / 1.5)));
  Step(cluster, 3, {0, 0, 1});
  EXPECT_EQ(cluster.Values("mean", 3), Floats({3, 3}));
}

TEST(ElasticRate, FollowsTheWeightOfTheStep) {
  JobConfig job = MeanJob();  // rate 1
  job.mutable_cluster()->set_workers(4);
  job.mutable_learning_rate()->set_elastic(true);
  ShardCluster cluster(job, ViewOf(4));
  Step(cluster, 1, {1, 1, 1, 1});
  EXPECT_EQ(cluster.Values("w", 1), Floats(2, -2.5F));
  Step(cluster, 2, {1, 1, 0, 0});
  // The mean of 1 and 2, at half the rate.
  EXPECT_EQ(cluster.Values("w", 2), Floats(2, -2.5F - 0.75F));
}

}  // namespace
}  // namespace parley::testing
