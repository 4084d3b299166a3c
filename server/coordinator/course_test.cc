#include "server/coordinator/course.h"

#include <gtest/gtest.h>

#include <vector>

#include "server/coordinator/coordinator_fixture.h"

namespace parley {
namespace {

using Kind = CourseEvent::Kind;

// A job's numbers in virtual time, and the kinds of what is told of them.
class CourseTest : public testing::Test {
 protected:
  std::vector<CourseEvent> See(absl::Duration later = absl::Seconds(1)) {
    now_ += later;
    return course_.See(numbers_, now_);
  }

  std::vector<Kind> SeeKinds(absl::Duration later = absl::Seconds(1)) {
    std::vector<Kind> kinds;
    for (const CourseEvent& event : See(later)) kinds.push_back(event.kind);
    return kinds;
  }

  // Training, with nothing untold.
  void Train(uint64_t version = 0) {
    numbers_.generation = 1;
    numbers_.job_epoch = 1;
    numbers_.phase = GATHERING;
    See();
    numbers_.view_epoch = 1;
    numbers_.start_step = version;
    numbers_.step = version;
    numbers_.phase = TRAINING;
    ASSERT_EQ(SeeKinds(), std::vector<Kind>{Kind::kView});
  }

  void Evaluate(uint64_t version) { numbers_.evaluations.emplace_back().set_version(version); }

  Course course_;
  CourseNumbers numbers_;
  absl::Time now_ = absl::FromUnixSeconds(1'795'230'000);
};

TEST_F(CourseTest, BeginsWithAStart) {
  numbers_.generation = 1;
  numbers_.phase = GATHERING;
  const auto events = See();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, Kind::kStart);
  EXPECT_FALSE(events[0].goes_on);
  EXPECT_EQ(events[0].time, now_);
  EXPECT_TRUE(See().empty());
}

TEST_F(CourseTest, EachStepIsTold) {
  Train();
  for (const uint64_t step : {1, 2, 3}) {
    numbers_.step = step;
    const auto events = See();
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].kind, Kind::kStep);
    EXPECT_EQ(events[0].at.step, step);
    EXPECT_TRUE(See().empty()) << "it is told once";
  }
}

TEST_F(CourseTest, OfManyStepsInASecondAFewAreTold) {
  Train();
  int told = 0;
  for (int i = 0; i < 1000; ++i) {  // a second
    ++numbers_.step;
    told += static_cast<int>(See(absl::Milliseconds(1)).size());
  }
  EXPECT_GE(told, 1);
  EXPECT_LE(told, 5);
}

TEST_F(CourseTest, TheLastStepIsToldHoweverSoonItCame) {
  for (const Phase phase : {SAVING, FINISHED, FAILED}) {
    course_ = Course();
    numbers_ = CourseNumbers();
    Train();
    numbers_.step = 1;
    See();
    numbers_.step = 2;
    EXPECT_TRUE(See(absl::Milliseconds(1)).empty());
    numbers_.phase = phase;
    const auto events = See(absl::Milliseconds(1));
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events[0].kind, Kind::kStep);
    EXPECT_EQ(events[0].at.step, 2U);
  }
}

TEST_F(CourseTest, TheVersionOfACheckpointIsNoStep) {
  Train(/*version=*/600);
  EXPECT_TRUE(See().empty());
  numbers_.step = 601;
  EXPECT_EQ(SeeKinds(), std::vector<Kind>{Kind::kStep});
}

TEST_F(CourseTest, ACoordinatorThatTakesOverDoesNotTellAgain) {
  numbers_.generation = 2;
  numbers_.job_epoch = 3;
  numbers_.view_epoch = 4;
  numbers_.phase = TRAINING;
  numbers_.step = 40;
  Evaluate(20);
  numbers_.checkpoints_failed = 1;
  const auto events = See();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, Kind::kStart);
  EXPECT_TRUE(events[0].goes_on);
  numbers_.step = 41;
  Evaluate(40);
  const auto later = See();
  ASSERT_EQ(later.size(), 2U);
  EXPECT_EQ(later[0].at.step, 41U);
  EXPECT_EQ(later[1].evaluation.version(), 40U);
}

TEST_F(CourseTest, EachEvaluationIsToldOnce) {
  Train();
  Evaluate(5);
  Evaluate(10);
  EXPECT_EQ(SeeKinds(), (std::vector<Kind>{Kind::kEvaluation, Kind::kEvaluation}));
  EXPECT_TRUE(See().empty());
}

TEST_F(CourseTest, WhatIsDoneAgainAfterGoingBackIsToldAgain) {
  Train();
  numbers_.step = 10;
  Evaluate(5);
  Evaluate(10);
  See();
  // All go back to version 5.
  numbers_.job_epoch = 2;
  numbers_.view_epoch = 2;
  numbers_.phase = PREPARING;
  numbers_.start_step = 5;
  numbers_.step = 5;
  numbers_.steps_lost = 5;
  numbers_.evaluations.pop_back();
  const auto events = See();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, Kind::kView);
  EXPECT_TRUE(events[0].went_back);
  EXPECT_EQ(events[0].steps_lost, 5U);
  numbers_.phase = TRAINING;
  EXPECT_TRUE(See().empty()) << "nothing is decided yet";
  numbers_.step = 10;
  Evaluate(10);
  EXPECT_EQ(SeeKinds(), (std::vector<Kind>{Kind::kStep, Kind::kEvaluation}));
}

TEST_F(CourseTest, CheckpointsAreToldAsTheyEnd) {
  Train();
  numbers_.checkpoints_written = 1;
  auto events = See();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, Kind::kCheckpoint);
  EXPECT_TRUE(events[0].is_whole);
  numbers_.checkpoints_failed = 1;
  events = See();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_FALSE(events[0].is_whole);
  EXPECT_TRUE(See().empty());
}

TEST_F(CourseTest, TheEndComesLastAndOnce) {
  Train();
  numbers_.step = 7;
  numbers_.phase = FINISHED;
  numbers_.checkpoints_written = 1;
  Evaluate(7);
  EXPECT_EQ(SeeKinds(),
            (std::vector<Kind>{Kind::kStep, Kind::kEvaluation, Kind::kCheckpoint, Kind::kEnd}));
  EXPECT_TRUE(See().empty());
}

TEST(CourseNumbers, AreTheCoordinators) {
  CoordinatorFixture job(2, 2);
  job.Train();
  const Verdict verdict = job.NextVerdict();
  ASSERT_TRUE(job.Report(*job.shards[0], {verdict}).ok());
  const CourseNumbers numbers = CourseNumbers::Read(job.core, job.now);
  EXPECT_EQ(numbers.generation, 1U);
  EXPECT_EQ(numbers.job_epoch, 1U);
  EXPECT_EQ(numbers.view_epoch, 1U);
  EXPECT_EQ(numbers.phase, TRAINING);
  EXPECT_EQ(numbers.step, 1U);
  EXPECT_EQ(numbers.samples, 20U);
  EXPECT_EQ(numbers.loss, 0.5);
  EXPECT_EQ(numbers.workers, 2U) << "shards are none";
  EXPECT_FALSE(numbers.cause);
}

}  // namespace
}  // namespace parley
