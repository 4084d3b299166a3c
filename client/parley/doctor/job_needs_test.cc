#include "client/parley/doctor/job_needs.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

JobConfig Job(uint32_t workers, uint32_t shards) {
  JobConfig job;
  job.mutable_cluster()->set_workers(workers);
  job.mutable_cluster()->set_shards(shards);
  job.set_threads(2);
  job.mutable_optimizer()->mutable_adam()->set_rate(0.1);
  job.mutable_checkpoint()->set_keep_last(5);
  return job;
}

// 1024 MiB.
ModelDescription Model() {
  ModelDescription model;
  TensorSpec tensor;
  tensor.set_name("weight");
  tensor.set_dtype(F32);
  tensor.add_shape(16 << 10);
  tensor.add_shape(16 << 10);
  model.tensors = {tensor};
  return model;
}

constexpr uint64_t kGibi = uint64_t{1} << 30;

TEST(NeedsOf, AllProcessesOfTheJobOrOneOfThem) {
  const JobNeeds all = NeedsOf(Job(4, 2), nullptr, /*all_here=*/true);
  EXPECT_EQ(all.processes, 7u);
  EXPECT_EQ(all.computing, 4u);
  EXPECT_EQ(all.compute_threads, 8u);
  EXPECT_EQ(all.peers, 6u);
  EXPECT_EQ(all.checkpoint, 0u);
  const JobNeeds one = NeedsOf(Job(4, 2), nullptr, /*all_here=*/false);
  EXPECT_EQ(one.processes, 1u);
  EXPECT_EQ(one.compute_threads, 2u);
  EXPECT_EQ(one.peers, 6u);
  EXPECT_LT(one.memory, all.memory);
}

TEST(NeedsOf, MemoryAndCheckpointsFollowThePlan) {
  const ModelDescription model = Model();
  const JobNeeds all = NeedsOf(Job(4, 2), &model, /*all_here=*/true);
  // Values and Adam's two moments, in two files.
  EXPECT_EQ(all.checkpoint, 3 * kGibi);
  EXPECT_EQ(all.largest_file, 3 * kGibi / 2);
  // Written once, at the end.
  EXPECT_EQ(all.checkpoints, 1u);
  // The shards' three, and of each worker its gradients and the largest of them once more.
  EXPECT_GE(all.memory, 11 * kGibi);
  EXPECT_LE(all.memory, 16 * kGibi);
  const JobNeeds one = NeedsOf(Job(4, 2), &model, /*all_here=*/false);
  EXPECT_GE(one.memory, 3 * kGibi);  // a worker's parameters, too
  EXPECT_LE(one.memory, 4 * kGibi);
  JobConfig often = Job(4, 2);
  often.mutable_checkpoint()->set_every_steps(100);
  EXPECT_EQ(NeedsOf(often, &model, true).checkpoints, 6u);
}

TEST(NeedsOf, StagesCompute) {
  JobConfig job = Job(2, 1);
  job.mutable_cluster()->set_stages(3);
  const JobNeeds needs = NeedsOf(job, nullptr, /*all_here=*/true);
  EXPECT_EQ(needs.processes, 10u);
  EXPECT_EQ(needs.computing, 6u);
}

}  // namespace
}  // namespace parley
