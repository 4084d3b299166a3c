// The client's parts for bounded and async that need no calls.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "client/gradient_check.h"
#include "client/lease_plan.h"

namespace parley {
namespace {

absl::Span<const std::byte> Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}

TEST(GradientCheckTest, ScalesTheWholeGradientDownToTheNorm) {
  GradientCheck check;
  check.Add(F32, Bytes({3, 0}));
  check.Add(F32, Bytes({0, 4}));
  EXPECT_DOUBLE_EQ(check.norm(), 5);
  EXPECT_NEAR(check.ClipScale(1), 0.2, 1e-6);
  EXPECT_EQ(check.ClipScale(7), 1) << "never up";
  EXPECT_TRUE(check.finite());
  check.Add(F32, Bytes({INFINITY}));
  EXPECT_FALSE(check.finite());
}

JobConfig Job() {
  JobConfig job;
  job.mutable_data()->set_batch(4);
  job.set_epochs(1);
  return job;
}

ClusterView View() {
  ClusterView view;
  view.set_training_samples(10);
  view.set_start_version(5);
  view.mutable_data_position()->set_epoch(2);
  return view;
}

TEST(LeasePlanTest, BeginsWhereTheViewDoes) {
  const LeasePlan plan(Job(), View());
  EXPECT_EQ(plan.version(), 5u);
  EXPECT_EQ(plan.data_epochs(), 2u);
  EXPECT_FALSE(plan.Next().has_value()) << "the step leader says what comes";
}

TEST(LeasePlanTest, ALeaseIsAStepWithItsSamplesAndWeight) {
  LeasePlan plan(Job(), View());
  Lease lease;
  lease.set_clock(3);
  SampleRange& range = *lease.add_ranges();
  range.set_begin(8);
  range.set_end(10);
  plan.Follow(7, lease);
  EXPECT_EQ(plan.version(), 7u);
  const auto next = plan.Next();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->step, 3u);
  EXPECT_EQ(next->weight, 0.5);
  EXPECT_EQ(next->samples, (std::vector<uint64_t>{8, 9})) << "not shuffled";
}

TEST(LeasePlanTest, ABarrierNamesItsVersion) {
  LeasePlan plan(Job(), View());
  Lease lease;
  lease.set_data_epoch(1);
  lease.set_version(9);
  plan.Follow(8, lease);
  EXPECT_EQ(plan.version(), 9u);
  EXPECT_EQ(plan.data_epochs(), 1u);
  EXPECT_FALSE(plan.Next().has_value()) << "clock 0: the job is done";
}

}  // namespace
}  // namespace parley
