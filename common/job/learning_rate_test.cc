#include "common/job/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace parley {
namespace {

double FactorOf(const JobConfig& job, uint64_t step) {
  return LearningRateFactor(job, {.step = step});
}

// Step k, from 0, of so many in each data epoch.
StepPlace OfEpochs(uint64_t k, uint64_t steps) {
  const double share = 1 / static_cast<double>(steps);
  return {.step = k + 1, .epochs_done = static_cast<double>(k) * share, .epochs = share};
}

TEST(LearningRate, IsConstantUnlessToldOtherwise) {
  const JobConfig job;
  for (const uint64_t step : {1, 2, 1000}) EXPECT_EQ(FactorOf(job, step), 1);
}

// torch.optim.lr_scheduler.StepLR: every step_size steps, times gamma.
TEST(LearningRate, StepDecayIsStepLr) {
  JobConfig job;
  job.mutable_learning_rate()->mutable_step_decay()->set_every_steps(30);
  job.mutable_learning_rate()->mutable_step_decay()->set_gamma(0.1);
  double rate = 1;
  for (uint64_t step = 1; step <= 200; ++step) {
    if (step > 1 && (step - 1) % 30 == 0) rate *= 0.1;
    EXPECT_NEAR(FactorOf(job, step), rate, 1e-12 * rate) << step;
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
    EXPECT_NEAR(FactorOf(job, step), rate, 1e-9) << step;
  }
  for (const uint64_t step : {kOver + 1, kOver + 2, 10 * kOver}) {
    EXPECT_NEAR(FactorOf(job, step), kMinimum, 1e-9) << "stays at the minimum";
  }
}

TEST(LearningRate, CosineRunsOverAllOfTheJobByDefault) {
  JobConfig job;
  job.mutable_learning_rate()->mutable_cosine();
  EXPECT_EQ(FactorOf(job, 7), 1) << "nobody knows its end";
  job.set_steps(100);
  EXPECT_EQ(FactorOf(job, 1), 1);
  EXPECT_NEAR(FactorOf(job, 51), 0.5, 1e-12);
  EXPECT_NEAR(FactorOf(job, 100), (1 + std::cos(M_PI * 0.99)) / 2, 1e-12);
  // Whatever the number of steps.
  job.clear_steps();
  job.set_epochs(4);
  for (const uint64_t step : {1, 1000}) {
    EXPECT_EQ(LearningRateFactor(job, {.step = step, .epochs_done = 0}), 1);
    EXPECT_NEAR(LearningRateFactor(job, {.step = step, .epochs_done = 2}), 0.5, 1e-12);
    EXPECT_NEAR(LearningRateFactor(job, {.step = step, .epochs_done = 3.96}),
                (1 + std::cos(M_PI * 0.99)) / 2, 1e-12);
    EXPECT_EQ(LearningRateFactor(job, {.step = step, .epochs_done = 4}), 0);
  }
}

// torch.optim.lr_scheduler.MultiStepLR.
TEST(LearningRate, MilestonesAreMultiStepLr) {
  JobConfig of_steps;
  Milestones& milestones = *of_steps.mutable_learning_rate()->mutable_milestones();
  for (const uint64_t steps : {30, 60, 80}) milestones.add_steps(steps);
  milestones.set_gamma(0.1);
  JobConfig of_epochs = of_steps;
  of_epochs.mutable_learning_rate()->mutable_milestones()->clear_steps();
  for (const double epochs : {3., 6., 8.}) {
    of_epochs.mutable_learning_rate()->mutable_milestones()->add_epochs(epochs);
  }
  double rate = 1;
  for (uint64_t k = 0; k < 100; ++k) {
    if (k == 30 || k == 60 || k == 80) rate *= 0.1;
    EXPECT_NEAR(FactorOf(of_steps, k + 1), rate, 1e-12 * rate) << k;
    const StepPlace place{.step = 7, .epochs_done = static_cast<double>(k) / 10};
    EXPECT_NEAR(LearningRateFactor(of_epochs, place), rate, 1e-12 * rate) << k;
  }
}

// Of four workers a step is four times as much of the data as of one.
TEST(LearningRate, WhatCountsEpochsIsTheSameForAnyNumberOfWorkers) {
  JobConfig of_epochs;
  of_epochs.mutable_learning_rate()->set_warmup_epochs(2);
  of_epochs.mutable_learning_rate()->mutable_step_decay()->set_every_epochs(3);
  of_epochs.mutable_learning_rate()->mutable_step_decay()->set_gamma(0.5);
  for (const uint64_t an_epoch : {16, 64}) {
    JobConfig of_steps;
    of_steps.mutable_learning_rate()->set_warmup_steps(2 * an_epoch);
    of_steps.mutable_learning_rate()->mutable_step_decay()->set_every_steps(3 * an_epoch);
    of_steps.mutable_learning_rate()->mutable_step_decay()->set_gamma(0.5);
    for (uint64_t k = 0; k < 8 * an_epoch; ++k) {
      EXPECT_NEAR(LearningRateFactor(of_epochs, OfEpochs(k, an_epoch)), FactorOf(of_steps, k + 1),
                  1e-12)
          << k << " of " << an_epoch;
    }
  }
}

TEST(LearningRate, WarmUpRisesInEqualStepsToTheScheduleAndLeavesIt) {
  JobConfig job;
  job.mutable_learning_rate()->set_warmup_steps(4);
  EXPECT_EQ(FactorOf(job, 1), 0.25);
  EXPECT_EQ(FactorOf(job, 2), 0.5);
  EXPECT_EQ(FactorOf(job, 3), 0.75);
  EXPECT_EQ(FactorOf(job, 4), 1);
  EXPECT_EQ(FactorOf(job, 5), 1);
  job.mutable_learning_rate()->mutable_step_decay()->set_every_steps(2);
  job.mutable_learning_rate()->mutable_step_decay()->set_gamma(0.5);
  EXPECT_EQ(FactorOf(job, 3), 0.75 * 0.5);
}

TEST(LearningRate, LinearScalingMultipliesByTheWorkers) {
  JobConfig job;
  job.mutable_cluster()->set_workers(8);
  EXPECT_EQ(FactorOf(job, 1), 1);
  job.mutable_learning_rate()->set_linear_scaling(true);
  EXPECT_EQ(FactorOf(job, 1), 8);
  job.mutable_learning_rate()->set_warmup_steps(2);
  EXPECT_EQ(FactorOf(job, 1), 4);
}

}  // namespace
}  // namespace parley
