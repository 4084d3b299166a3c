#include "server/coordinator/job_end.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

class JobEndTest : public testing::Test {
 protected:
  void SetUp() override {
    last_.set_job_fingerprint("f");
    last_.set_over(true);
  }
  void Fail(bool preempted, bool stopped) {
    last_.set_phase(FAILED);
    last_.mutable_cause()->set_text("why");
    last_.mutable_cause()->set_preempted(preempted);
    last_.set_stopped(stopped);
  }

  CoordinatorState last_;
};

TEST_F(JobEndTest, WhoStoodByEndsAsTheJobDid) {
  last_.set_phase(FINISHED);
  EXPECT_EQ(EndedMeanwhile(last_, "f", true)->code, kFinished);
  Fail(/*preempted=*/false, /*stopped=*/false);
  EXPECT_EQ(EndedMeanwhile(last_, "f", true)->code, kFailed);
  EXPECT_EQ(EndedMeanwhile(last_, "f", true)->text, "why");
  Fail(/*preempted=*/true, /*stopped=*/true);
  EXPECT_EQ(EndedMeanwhile(last_, "f", true)->code, kPreempted);
  EXPECT_EQ(EndedMeanwhile(last_, "f", true)->text, "why");
}

TEST_F(JobEndTest, WhereTheMembersComeBackItBeginsTheNextRun) {
  Fail(/*preempted=*/true, /*stopped=*/false);
  EXPECT_FALSE(EndedMeanwhile(last_, "f", true));
}

TEST_F(JobEndTest, AJobThatHasNotEndedGoesOn) {
  last_.set_over(false);
  for (Phase phase : {GATHERING, PREPARING, TRAINING, SAVING, FINISHED, FAILED}) {
    last_.set_phase(phase);
    EXPECT_FALSE(EndedMeanwhile(last_, "f", true)) << Phase_Name(phase);
  }
}

TEST_F(JobEndTest, OfAnEarlierRunOnlyThatItHasFinishedIsAnEnd) {
  Fail(/*preempted=*/false, /*stopped=*/false);
  EXPECT_FALSE(EndedMeanwhile(last_, "f", false)) << "this one tries again";
  Fail(/*preempted=*/true, /*stopped=*/true);
  EXPECT_FALSE(EndedMeanwhile(last_, "f", false)) << "somebody began again what was stopped";
  last_.set_phase(FINISHED);
  EXPECT_TRUE(EndedMeanwhile(last_, "f", false)) << "its node was lost after that";
  EXPECT_FALSE(EndedMeanwhile(last_, "g", false)) << "more epochs";
  EXPECT_FALSE(EndedMeanwhile(last_, "g", true));
}

}  // namespace
}  // namespace parley
