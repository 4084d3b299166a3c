#include "common/job/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace parley {
namespace {

TEST(LearningRate, IsConstantUnlessToldOtherwise) {
  const JobConfig job;
  for (const uint64_t step : {1, 2, 1000}) EXPECT_EQ(LearningRateFactor(job, step, 1000), 1);
}

// torch.optim.lr_scheduler.StepLR: every step_size steps, times gamma.
TEST(LearningRate, StepDecayIsStepLr) {
  JobConfig job;
  job.mutable_learning_rate()->mutable_step_decay()->set_every_steps(30);
  job.mutable_learning_rate()->mutable_step_decay()->set_gamma(0.1);
  double rate = 1;
  for (uint64_t step = 1; step <= 200; ++step) {
    if (step > 1 && (step - 1) % 30 == 0) rate *= 0.1;
    EXPECT_NEAR(LearningRateFactor(job, step, 200), rate, 1e-12 * rate) << step;
  }
}

// torch.optim.lr_scheduler.CosineAnnealingLR, by its recursive form: another way to the same curve
// than the closed one.
TEST(LearningRate, CosineIsCosineAnnealingLr) {
  constexpr uint64_t kOver = 150;
  constexpr double kMinimum = 0.05;
  JobConfig job;
  Cosine& cosine = *job.mutable_learning_rate()->mutable_cosine();
  cosine.set_over_steps(kOver);
  cosine.set_minimum(kMinimum);
  double rate = 1;
  for (uint64_t step = 1; step <= kOver; ++step) {
    if (step > 1) {
      const auto t = static_cast<double>(step - 1);
      rate = (1 + std::cos(M_PI * t / kOver)) / (1 + std::cos(M_PI * (t - 1) / kOver)) *
                 (rate - kMinimum) +
             kMinimum;
    }
    EXPECT_NEAR(LearningRateFactor(job, step, 9999), rate, 1e-9) << step;
  }
  for (const uint64_t step : {kOver + 1, kOver + 2, 10 * kOver}) {
    EXPECT_NEAR(LearningRateFactor(job, step, 9999), kMinimum, 1e-9) << "stays at the minimum";
  }
}

TEST(LearningRate, CosineRunsOverAllStepsByDefault) {
  JobConfig job;
  job.mutable_learning_rate()->mutable_cosine();
  EXPECT_EQ(LearningRateFactor(job, 1, 100), 1);
  EXPECT_NEAR(LearningRateFactor(job, 51, 100), 0.5, 1e-12);
  EXPECT_NEAR(LearningRateFactor(job, 100, 100), (1 + std::cos(M_PI * 0.99)) / 2, 1e-12);
  EXPECT_EQ(LearningRateFactor(job, 1, 0), 1) << "no steps, no division by them";
}

TEST(LearningRate, WarmUpRisesInEqualStepsToTheScheduleAndLeavesIt) {
  JobConfig job;
  job.mutable_learning_rate()->set_warmup_steps(4);
  EXPECT_EQ(LearningRateFactor(job, 1, 100), 0.25);
  EXPECT_EQ(LearningRateFactor(job, 2, 100), 0.5);
  EXPECT_EQ(LearningRateFactor(job, 3, 100), 0.75);
  EXPECT_EQ(LearningRateFactor(job, 4, 100), 1);
  EXPECT_EQ(LearningRateFactor(job, 5, 100), 1);
  job.mutable_learning_rate()->mutable_step_decay()->set_every_steps(2);
  job.mutable_learning_rate()->mutable_step_decay()->set_gamma(0.5);
  EXPECT_EQ(LearningRateFactor(job, 3, 100), 0.75 * 0.5);
}

TEST(LearningRate, LinearScalingMultipliesByTheWorkers) {
  JobConfig job;
  job.mutable_cluster()->set_workers(8);
  EXPECT_EQ(LearningRateFactor(job, 1, 100), 1);
  job.mutable_learning_rate()->set_linear_scaling(true);
  EXPECT_EQ(LearningRateFactor(job, 1, 100), 8);
  job.mutable_learning_rate()->set_warmup_steps(2);
  EXPECT_EQ(LearningRateFactor(job, 1, 100), 4);
}

}  // namespace
}  // namespace parley
