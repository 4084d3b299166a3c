#include "worker/loss_scale.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace parley {
namespace {

JobConfig Job(double initial, uint64_t growth_interval) {
  JobConfig job;
  job.set_precision(FLOAT16_AUTOCAST);
  job.mutable_loss_scale()->set_initial(initial);
  job.mutable_loss_scale()->set_growth_interval(growth_interval);
  return job;
}

absl::Status Decide(LossScale& scale, Verdict::Outcome outcome, int times = 1,
                    bool has_shares = true) {
  Verdict verdict;
  if (has_shares) verdict.add_shares();
  verdict.set_outcome(outcome);
  verdict.set_step(7);
  absl::Status status;
  for (int i = 0; i < times; ++i) status.Update(scale.Decided(verdict));
  return status;
}

TEST(LossScaleTest, HalvesWithASkipAndDoublesAfterSoManyWithoutOne) {
  LossScale scale(Job(1024, 3));
  EXPECT_EQ(scale.value(), 1024);
  EXPECT_TRUE(Decide(scale, Verdict::APPLY, 2).ok());
  EXPECT_EQ(scale.value(), 1024);
  EXPECT_TRUE(Decide(scale, Verdict::SKIP).ok());
  EXPECT_EQ(scale.value(), 512);
  EXPECT_TRUE(Decide(scale, Verdict::APPLY, 2).ok());
  EXPECT_EQ(scale.value(), 512) << "those before the skip do not count";
  EXPECT_TRUE(Decide(scale, Verdict::STALE).ok());
  EXPECT_EQ(scale.value(), 512) << "somebody else's step";
  EXPECT_TRUE(Decide(scale, Verdict::SKIP, 100, /*has_shares=*/false).ok());
  EXPECT_EQ(scale.value(), 512) << "nobody's gradients";
  EXPECT_TRUE(Decide(scale, Verdict::APPLY).ok());
  EXPECT_EQ(scale.value(), 1024);
  EXPECT_TRUE(Decide(scale, Verdict::APPLY, 300).ok());
  EXPECT_EQ(scale.value(), 1 << 24) << "no more";
}

TEST(LossScaleTest, TrainingThatDivergesEnds) {
  LossScale scale(Job(4, 3));
  EXPECT_TRUE(Decide(scale, Verdict::SKIP, LossScale::kMostSkipped - 1).ok());
  EXPECT_EQ(scale.value(), 1) << "no less";
  EXPECT_TRUE(Decide(scale, Verdict::APPLY).ok());
  EXPECT_TRUE(Decide(scale, Verdict::SKIP, LossScale::kMostSkipped - 1).ok());
  const absl::Status status = Decide(scale, Verdict::SKIP);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "diverged")) << status;
}

TEST(LossScaleTest, WithoutAGrowthIntervalItStays) {
  LossScale scale(Job(256, 0));
  EXPECT_TRUE(Decide(scale, Verdict::SKIP, 5).ok());
  EXPECT_TRUE(Decide(scale, Verdict::APPLY, 5000).ok());
  EXPECT_EQ(scale.value(), 256);
  EXPECT_FALSE(Decide(scale, Verdict::SKIP, LossScale::kMostSkipped).ok());
}

TEST(LossScaleTest, OtherPrecisionsHaveNone) {
  JobConfig job = Job(256, 1);
  job.set_precision(BFLOAT16_AUTOCAST);
  LossScale scale(job);
  EXPECT_TRUE(Decide(scale, Verdict::APPLY, 10).ok());
  EXPECT_TRUE(Decide(scale, Verdict::SKIP, 1000).ok());
  EXPECT_EQ(scale.value(), 1);
}

}  // namespace
}  // namespace parley
