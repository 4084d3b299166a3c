#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "common/loop_threads.h"
#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

TEST(ShardTest, ASliceWithNoneFromAllIsUntouchedAndFromSomeCountsAsZero) {
  JobConfig job = MeanJob();
  job.mutable_optimizer()->mutable_sgd()->set_momentum(0.5);
  ShardCluster cluster(job, MakeView({.tensors = {{"a", 2}, {"b", 2}}, .workers = 2}));
  // Step 1: both push a and b, so that b has momentum.
  for (uint32_t worker : {0, 1}) {
    cluster.PushAll(worker, 1, 0, 4);
    cluster.Complete(cluster.MakeComplete(worker, 1, 0));
  }
  EXPECT_EQ(cluster.Values("b", 1), Floats(2, -4));
  // Step 2: a from one of them only, b from nobody.
  ASSERT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(0, 2, 0, 0, {2, 2}))), ADDED);
  CompleteRequest complete = cluster.MakeComplete(0, 2, 0);
  complete.add_none(1);
  cluster.Complete(complete);
  complete = cluster.MakeComplete(1, 2, 0);
  complete.add_none(0);
  complete.add_none(1);
  const Verdict verdict = VerdictOf(cluster.Complete(complete));
  EXPECT_EQ(verdict.none_size(), 2);
  EXPECT_EQ(cluster.Values("a", 2), Floats(2, -4 - (0.5f * 4 + 1)));
  EXPECT_EQ(cluster.Values("b", 2), Floats(2, -4));  // no momentum step either
  // `none` does not raise the optimizer's own count.
  auto snapshot = cluster.shard(0).Snapshot(2);
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ((*snapshot)[0].optimizer_steps, 2u);
  EXPECT_EQ((*snapshot)[1].optimizer_steps, 1u);
}

TEST(ShardTest, ThreadsChangeNoBit) {
  JobConfig job = MeanJob();
  job.mutable_optimizer()->set_clip_norm(0.5);
  job.mutable_optimizer()->mutable_sgd()->set_momentum(0.9);
  const ClusterView view =
      MakeView({.tensors = {{"a", 4 * kBlockElements}, {"b", kBlockElements + 100}, {"c", 7}},
                .workers = 2});
  LoopThreads threads(3);
  int loops = 0;
  ShardCluster alone(job, view);
  ShardCluster together(job, view, /*start=*/true,
                        {[&](size_t count, const std::function<void(size_t)>& body) {
                          ++loops;
                          threads.Run(count, body);
                        }});
  for (uint64_t step = 1; step <= 3; ++step) {
    for (ShardCluster* const cluster : {&alone, &together}) {
      for (uint32_t worker : {0, 1}) {
        cluster->PushAll(worker, step, 0, 0.1F * static_cast<float>(worker + step));
        cluster->Complete(cluster->MakeComplete(worker, step, 0));
      }
    }
    for (const char* const name : {"a", "b", "c"}) {
      EXPECT_EQ(alone.Values(name, step), together.Values(name, step)) << name;
    }
  }
  EXPECT_EQ(loops, 3 * 2) << "the norms and the update of each step";
}

TEST(ShardTest, AFrozenParameterStaysAndItsOptimizerDoesNotCount) {
  JobConfig job = SummingJob();
  OptimizerOverride* frozen = job.mutable_optimizer()->add_overrides();
  frozen->set_pattern("a");
  frozen->set_frozen_until_step(2);
  ShardCluster cluster(job, MakeView({.tensors = {{"a", 2}, {"b", 2}}}));
  for (uint64_t step = 1; step <= 3; ++step) {
    cluster.PushAll(0, step, 0, 1);
    cluster.Complete(cluster.MakeComplete(0, step, 0));
  }
  EXPECT_EQ(cluster.Values("a", 3), Floats(2, -1));
  EXPECT_EQ(cluster.Values("b", 3), Floats(2, -3));
  EXPECT_EQ((*cluster.shard(0).Snapshot(3))[0].optimizer_steps, 1u);
}

// A worker's part of a step, with two samples, from `begin` on.
ShardCluster::CompleteResult CompleteWith(ShardCluster& cluster, uint32_t worker, uint64_t step,
                                          uint32_t attempt, uint64_t begin) {
  constexpr uint64_t kSamples = 2;
  cluster.PushAll(worker, step, attempt, 1);
  CompleteRequest complete = cluster.MakeComplete(worker, step, attempt);
  complete.mutable_share()->set_samples(kSamples);
  SampleRange& range = *complete.mutable_share()->add_ranges();
  range.set_begin(begin);
  range.set_end(begin + kSamples);
  return cluster.Complete(complete);
}

// Two workers, of which one is lost after the first step; 16 samples, 2 for each in a step.
ClusterView OfSixteen() {
  ClusterView view = MakeView({.tensors = {{"a", 1}, {"b", 1}}, .shards = 2, .workers = 2});
  view.set_training_samples(16);
  return view;
}

JobConfig ForAnEpoch() {
  JobConfig job = SummingJob();
  job.mutable_data()->set_batch(2);
  job.mutable_cluster()->set_workers(2);
  job.clear_steps();
  job.set_epochs(1);
  return job;
}

std::vector<float> StepsOf(const JobConfig& job) {
  const ClusterView view = OfSixteen();
  ShardCluster cluster(job, view);
  CompleteWith(cluster, 0, 1, 0, 0);
  CompleteWith(cluster, 1, 1, 0, 2);
  cluster.Deliver();
  cluster.SetView(Without(view, 1));  // the open step is tried again
  cluster.Deliver();
  std::vector<float> steps;
  float before = 0;
  for (uint64_t step = 1; step <= 7; ++step) {
    if (step > 1) CompleteWith(cluster, 0, step, step == 2 ? 1 : 0, 2 * step);
    cluster.Deliver();
    EXPECT_EQ(cluster.Values("a", step), cluster.Values("b", step)) << "of two shards, " << step;
    const float now = cluster.Values("a", step)[0];
    steps.push_back(before - now);
    before = now;
  }
  return steps;
}

TEST(ShardTest, ARateThatFallsOverTheWholeJobFollowsTheDataWhoeverIsLost) {
  JobConfig job = ForAnEpoch();
  job.mutable_learning_rate()->mutable_cosine();
  const std::vector<float> steps = StepsOf(job);
  EXPECT_FLOAT_EQ(steps[0], 2);
  // 2 of 16 samples are used in each step, after 4 in the first one.
  for (size_t step = 1; step < steps.size(); ++step) {
    const double share = (2 + 2 * static_cast<double>(step)) / 16;
    EXPECT_NEAR(steps[step], (1 + std::cos(M_PI * share)) / 2, 1e-6) << step + 1;
  }
}

TEST(ShardTest, WarmUpAndFreezingOverDataEpochsCountWhatIsUsed) {
  JobConfig job = ForAnEpoch();
  job.mutable_learning_rate()->set_warmup_epochs(0.75);  // of 16 samples
  const std::vector<float> steps = StepsOf(job);
  // The second step was to have both workers when the first one was decided.
  const std::vector<float> samples = {4, 8, 8, 10, 12, 12, 12};
  for (size_t step = 0; step < steps.size(); ++step) {
    EXPECT_NEAR(steps[step], (step == 0 ? 2 : 1) * samples[step] / 12, 1e-6) << step + 1;
  }
  job.mutable_learning_rate()->set_warmup_epochs(0);
  job.mutable_optimizer()->add_overrides()->set_pattern("*");
  job.mutable_optimizer()->mutable_overrides(0)->set_frozen_epochs(0.5);
  EXPECT_EQ(StepsOf(job), (std::vector<float>{0, 0, 0, 1, 1, 1, 1}));
}

TEST(ShardTest, ANonFiniteGradientSkipsTheStepOnAllShards) {
  JobConfig job = SummingJob();
  job.mutable_optimizer()->set_skip_nonfinite(true);
  ShardCluster cluster(job, MakeView({.tensors = {{"a", 2}, {"b", 2}}, .shards = 2}));
  ASSERT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(0, 1, 0, 0, {1, 1}))), ADDED);
  const float infinity = std::numeric_limits<float>::infinity();
  ASSERT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(0, 1, 0, 1, {infinity, 1}))), ADDED);
  auto result = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  EXPECT_FALSE(result->has_value());  // shard 1's flag is to come
  cluster.Deliver();
  EXPECT_EQ(VerdictOf(result).outcome(), Verdict::SKIP);
  EXPECT_EQ(cluster.Values("a", 1), Floats(2, 0));
  EXPECT_EQ(cluster.Values("b", 1), Floats(2, 0));
  EXPECT_EQ((*cluster.shard(0).Snapshot(1))[0].optimizer_steps, 0u);
  cluster.PushAll(0, 2, 0, 1);
  cluster.Complete(cluster.MakeComplete(0, 2, 0));
  cluster.Deliver();
  EXPECT_EQ(cluster.Values("a", 2), Floats(2, -1));
}

TEST(ShardTest, TheReducedGradientIsClippedToItsGlobalNorm) {
  JobConfig job = MeanJob();
  job.mutable_optimizer()->set_clip_norm(1);
  ShardCluster cluster(job, MakeView({.tensors = {{"a", 1}, {"b", 1}}, .shards = 2}));
  ASSERT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(0, 1, 0, 0, {3}))), ADDED);
  ASSERT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(0, 1, 0, 1, {4}))), ADDED);
  auto result = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  cluster.Deliver();
  EXPECT_EQ(VerdictOf(result).gradient_norm(), 5);
  EXPECT_EQ(VerdictOf(result).clip_scale(), 1 / (5 + 1e-6));
  const float scale = static_cast<float>(1 / (5 + 1e-6));
  EXPECT_EQ(cluster.Values("a", 1)[0], -(3 * scale));
  EXPECT_EQ(cluster.Values("b", 1)[0], -(4 * scale));
}

TEST(ShardTest, WhatIsClippedIsTheMean) {
  JobConfig job = MeanJob();
  job.mutable_optimizer()->set_clip_norm(100);  // not reached
  ShardCluster cluster(job, MakeView({.workers = 2}));
  for (uint32_t worker : {0, 1}) {
    cluster.PushAll(worker, 1, 0, 2 + 4 * worker);
    cluster.Complete(cluster.MakeComplete(worker, 1, 0));
  }
  EXPECT_EQ(cluster.reported()[0].gradient_norm(), 8);  // of four elements, each 4
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -4));
}

TEST(ShardTest, ABufferIsTakenFromTheLowestContributorWithData) {
  ShardCluster cluster(MeanJob(),
                       MakeView({.tensors = {{"n", 1, true, I64}, {"w", 1}}, .workers = 3}));
  for (uint32_t worker : {2, 1, 0}) {
    CompleteRequest complete = cluster.MakeComplete(worker, 1, 0, worker == 0 ? 0 : 1);
    PushRequest push = cluster.MakePush(worker, 1, 0, 0, {});
    const int64_t value = 100 + worker;
    push.mutable_slices(0)->set_dtype(I64);
    push.mutable_slices(0)->set_data(&value, sizeof(value));
    ASSERT_EQ(OutcomeOf(cluster.Push(push)), ADDED);
    cluster.PushAll(worker, 1, 0, 1);
    cluster.Complete(complete);
  }
  auto pulled = cluster.Pull(0, 0, 1);
  ASSERT_TRUE(pulled->has_value());
  EXPECT_EQ((**pulled)->slices[0].values->as<int64_t>()[0], 101);
}

}  // namespace
}  // namespace parley::testing
