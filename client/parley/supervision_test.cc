#include "client/parley/supervision.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace parley {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);
constexpr char kCause[] = "worker 1 at 127.0.0.1:4567 (pid 123) has not been heard of since ...";
constexpr char kLog[] = "/out/x.log";

class SupervisionTest : public testing::Test {
 protected:
  void Saw(Phase phase) {
    GetStatusReply status;
    status.set_phase(phase);
    supervision_.Saw(status);
  }
  void SawCause(bool preempted) {
    GetStatusReply status;
    status.set_phase(FAILED);
    status.mutable_cause()->set_text(kCause);
    status.mutable_cause()->set_preempted(preempted);
    supervision_.Saw(status);
  }
  void Ended(const std::string& name, int code, const std::string& last_line) {
    supervision_.ChildEnded(name, {.code = code}, last_line, kLog, now_);
  }
  void Killed(const std::string& name) {
    supervision_.ChildEnded(name, {.signal = SIGKILL}, "some line of a log", kLog, now_);
  }
  void Expect(ExitCode code, const std::string& line) {
    EXPECT_EQ(supervision_.Result().code, code);
    EXPECT_EQ(supervision_.Result().last_line, line);
  }

  absl::Time now_ = kStart;
  const std::vector<std::string> others_ = {"shard-1", "worker-0"};
  Supervision supervision_{{absl::Seconds(30), absl::Seconds(60)}, kStart};
};

TEST_F(SupervisionTest, AllEndedCleanlyIsFinished) {
  Saw(SAVING);
  for (const char* name : {"worker-0", "shard-0", "coordinator"}) Ended(name, 0, "served");
  EXPECT_FALSE(supervision_.MustEnd({}, now_ + absl::Hours(1)));
  Expect(kFinished, "");
}

TEST_F(SupervisionTest, OthersAreLeftToEndByThemselvesForTheirTime) {
  Saw(TRAINING);
  Killed("worker-1");
  EXPECT_FALSE(supervision_.MustEnd(others_, now_ + absl::Seconds(29)));
  EXPECT_TRUE(supervision_.MustEnd(others_, now_ + absl::Seconds(30)));
}

TEST_F(SupervisionTest, AWorkerThatTheJobCanSpareEndsNothing) {
  supervision_ = Supervision({absl::Seconds(30), absl::Seconds(60), /*spare_workers=*/1}, kStart);
  Saw(TRAINING);
  Killed("worker-1");
  EXPECT_FALSE(supervision_.MustEnd(others_, now_ + absl::Hours(1)));
  Saw(SAVING);
  for (const char* name : {"worker-0", "shard-0", "coordinator"}) Ended(name, 0, "served");
  Expect(kFinished, "");
}

TEST_F(SupervisionTest, OneWorkerMoreThanItCanSpareEndsTheJob) {
  supervision_ = Supervision({absl::Seconds(30), absl::Seconds(60), /*spare_workers=*/1}, kStart);
  Saw(TRAINING);
  Killed("worker-1");
  Killed("worker-0");
  EXPECT_TRUE(supervision_.MustEnd(others_, now_ + absl::Seconds(30)));
  Expect(kFailed, absl::StrCat("worker-0 was ended by SIGKILL; its log is ", kLog));
}

TEST_F(SupervisionTest, AWorkerThatTheJobHasSentAwayEndsNothing) {
  Saw(TRAINING);
  Ended("worker-1", 0, "has left the job");
  EXPECT_FALSE(supervision_.MustEnd(others_, now_ + absl::Hours(1)));
  Saw(SAVING);
  EXPECT_FALSE(supervision_.MustEnd(others_, now_ + absl::Hours(2)));
  for (const char* name : {"worker-0", "shard-0", "coordinator"}) Ended(name, 0, "served");
  Expect(kFinished, "");
}

TEST_F(SupervisionTest, ButWhenNoWorkerIsLeftTheOthersHaveTheirTime) {
  Saw(TRAINING);
  Ended("worker-1", 0, "");
  Ended("worker-0", 0, "");
  EXPECT_FALSE(supervision_.MustEnd({"shard-0"}, now_));
  EXPECT_TRUE(supervision_.MustEnd({"shard-0"}, now_ + absl::Seconds(30)));
}

TEST_F(SupervisionTest, TheEndOfTheJobIsSeenAfterAWorkersEnd) {
  Saw(TRAINING);
  Ended("worker-1", 0, "");
  Saw(FINISHED);
  EXPECT_FALSE(supervision_.MustEnd(others_, now_));
  EXPECT_TRUE(supervision_.MustEnd(others_, now_ + absl::Seconds(30)));
}

TEST_F(SupervisionTest, WithMoreWorkersItCanSpareMore) {
  supervision_ = Supervision({absl::Seconds(30), absl::Seconds(60), /*spare_workers=*/1}, kStart);
  const auto wants = [&](uint32_t workers) {
    GetStatusReply status;
    status.set_phase(TRAINING);
    status.set_wanted_workers(workers);
    supervision_.Saw(status);
  };
  wants(2);
  Killed("worker-1");
  wants(4);  // one takes its place, two more come: it has four, and needs one
  for (const char* name : {"worker-0", "worker-2", "worker-3"}) Killed(name);
  EXPECT_FALSE(supervision_.MustEnd(others_, now_ + absl::Hours(1)));
  wants(2);
  Killed("worker-4");
  EXPECT_FALSE(supervision_.MustEnd(others_, now_ + absl::Hours(1)));
  Killed("worker-5");
  EXPECT_TRUE(supervision_.MustEnd(others_, now_ + absl::Seconds(30)));
}

TEST_F(SupervisionTest, TheCoordinatorsCauseIsTheLastLine) {
  Saw(TRAINING);
  Killed("worker-1");
  SawCause(false);
  Ended("shard-0", 1, "another line");
  Expect(kFailed, kCause);
}

TEST_F(SupervisionTest, APreemptedJobIsPreempted) {
  SawCause(true);
  Expect(kPreempted, kCause);
}

TEST_F(SupervisionTest, WithoutTheCoordinatorTheStepLeadersLastLineCounts) {
  Saw(TRAINING);
  Killed("coordinator");
  Ended("worker-0", 1, "the worker's");
  Ended("shard-1", 1, "the other shard's");
  Ended("shard-0", 1, "the leader's");
  Expect(kFailed, "the leader's");
}

TEST_F(SupervisionTest, AJobWithAutonomyOutlivesItsCoordinatorAndFinishesWithTheNext) {
  supervision_ = Supervision({.patience = absl::Seconds(30),
                              .first_answer = absl::Seconds(60),
                              .autonomy = absl::Seconds(100)},
                             kStart);
  Saw(TRAINING);
  Killed("coordinator");
  EXPECT_TRUE(supervision_.coordinator_is_away());
  EXPECT_FALSE(supervision_.MustEnd(others_, now_ + absl::Seconds(129)));
  EXPECT_TRUE(supervision_.MustEnd(others_, now_ + absl::Seconds(130))) << "and nobody came";
  Saw(TRAINING);
  EXPECT_TRUE(supervision_.coordinator_is_away()) << "an answer that the old one gave";
  GetStatusReply status;
  status.set_phase(TRAINING);
  status.set_generation(2);
  supervision_.Saw(status);
  EXPECT_FALSE(supervision_.coordinator_is_away());
  EXPECT_FALSE(supervision_.MustEnd(others_, now_ + absl::Hours(5)));
  for (const char* name : {"worker-0", "shard-0", "shard-1"}) Ended(name, 0, "served");
  Expect(kFinished, "");
}

TEST_F(SupervisionTest, WhoStoppedForWantOfACoordinatorTellsTheCause) {
  supervision_ = Supervision({.patience = absl::Seconds(30),
                              .first_answer = absl::Seconds(60),
                              .autonomy = absl::Seconds(100)},
                             kStart);
  Saw(TRAINING);
  Killed("coordinator");
  Expect(kFailed, "coordinator was ended by SIGKILL; its log is /out/x.log");
  Ended("worker-0", 1, "the worker's");
  Ended("shard-0", 1, "the leader's");
  Expect(kFailed, "the leader's");
}

TEST_F(SupervisionTest, IfAllWereKilledTheFirstOneIsNamed) {
  Saw(TRAINING);
  Killed("worker-1");
  Killed("coordinator");
  EXPECT_EQ(supervision_.Result().code, kFailed);
  // Neither knows why, but one who looks for the cause looks at the coordinator first.
  EXPECT_EQ(supervision_.Result().last_line,
            "coordinator was ended by SIGKILL; its log is /out/x.log");
}

TEST_F(SupervisionTest, AProcessThatFailsBeforeTheJobIsUpEndsTheRunWithItsStatus) {
  Saw(GATHERING);
  Ended("shard-1", 2, "cannot listen on 127.0.0.1:80");
  EXPECT_TRUE(supervision_.MustEnd(others_, now_));
  Ended("worker-0", 75, "preempted by SIGTERM");  // by us
  Expect(kWrongUsage, "cannot listen on 127.0.0.1:80");
}

TEST_F(SupervisionTest, AProcessThatIsKilledBeforeTheJobIsUpEndsTheRun) {
  Killed("coordinator");
  EXPECT_TRUE(supervision_.MustEnd(others_, now_));
  Expect(kFailed, "coordinator was ended by SIGKILL; its log is /out/x.log");
}

TEST_F(SupervisionTest, ACoordinatorThatNeverAnswersIsNotWaitedFor) {
  EXPECT_FALSE(supervision_.MustEnd({"coordinator"}, kStart + absl::Seconds(59)));
  EXPECT_TRUE(supervision_.MustEnd({"coordinator"}, kStart + absl::Seconds(60)));
  EXPECT_EQ(supervision_.Result().code, kFailed);
}

TEST_F(SupervisionTest, SignalsEndTheRunAtOnce) {
  Saw(TRAINING);
  EXPECT_FALSE(supervision_.Signalled(SIGINT, now_));
  EXPECT_TRUE(supervision_.MustEnd(others_, now_));
  Expect(kFailed, "interrupted by SIGINT");
  Supervision another({absl::Seconds(30), absl::Seconds(60)}, kStart);
  EXPECT_FALSE(another.Signalled(SIGUSR1, now_));
  EXPECT_EQ(another.Result().code, kPreempted);
  EXPECT_EQ(another.Result().last_line, "interrupted by SIGUSR1");
}

class PreemptedSupervisionTest : public SupervisionTest {
 protected:
  PreemptedSupervisionTest() {
    supervision_ = Supervision({.patience = absl::Seconds(30),
                                .first_answer = absl::Seconds(60),
                                .preemption_grace = absl::Seconds(10),
                                .warning_grace = absl::Seconds(50)},
                               kStart);
  }
};

TEST_F(PreemptedSupervisionTest, AJobThatTrainsEndsByItself) {
  Saw(TRAINING);
  EXPECT_TRUE(supervision_.Signalled(SIGTERM, now_)) << "it is to be told";
  EXPECT_FALSE(supervision_.Signalled(SIGUSR1, now_)) << "once";
  EXPECT_FALSE(supervision_.MustEnd(others_, now_ + absl::Seconds(12)));
  SawCause(true);
  Expect(kPreempted, kCause);
}

TEST_F(PreemptedSupervisionTest, NotForEver) {
  Saw(TRAINING);
  EXPECT_TRUE(supervision_.Signalled(SIGTERM, now_));
  EXPECT_FALSE(supervision_.MustEnd(others_, now_ + absl::Seconds(12)));
  EXPECT_TRUE(supervision_.MustEnd(others_, now_ + absl::Seconds(13)));
  Expect(kPreempted, "interrupted by SIGTERM");
}

TEST_F(PreemptedSupervisionTest, WhoIsWarnedEarlyHasMoreTime) {
  Saw(TRAINING);
  EXPECT_TRUE(supervision_.Signalled(SIGUSR1, now_));
  EXPECT_FALSE(supervision_.Signalled(SIGUSR1, now_)) << "once";
  EXPECT_FALSE(supervision_.MustEnd(others_, now_ + absl::Seconds(52)));
  EXPECT_TRUE(supervision_.MustEnd(others_, now_ + absl::Seconds(53)));
  Expect(kPreempted, "interrupted by SIGUSR1");
}

TEST_F(PreemptedSupervisionTest, ALaterSigtermLeavesLess) {
  Saw(TRAINING);
  EXPECT_TRUE(supervision_.Signalled(SIGUSR1, now_));
  EXPECT_TRUE(supervision_.Signalled(SIGTERM, now_ + absl::Seconds(20))) << "it is to be told";
  EXPECT_FALSE(supervision_.MustEnd(others_, now_ + absl::Seconds(32)));
  EXPECT_TRUE(supervision_.MustEnd(others_, now_ + absl::Seconds(33)));
  Expect(kPreempted, "interrupted by SIGUSR1");
}

TEST_F(PreemptedSupervisionTest, UnderSlurmASecondSigtermSaysNothingNew) {
  supervision_ = Supervision({.patience = absl::Seconds(30),
                              .first_answer = absl::Seconds(60),
                              .preemption_grace = absl::Seconds(10),
                              .one_sigterm = true},
                             kStart);
  Saw(TRAINING);
  EXPECT_TRUE(supervision_.Signalled(SIGTERM, now_));
  EXPECT_FALSE(supervision_.Signalled(SIGTERM, now_ + absl::Seconds(1)));
  EXPECT_FALSE(supervision_.MustEnd(others_, now_ + absl::Seconds(12)));
  EXPECT_TRUE(supervision_.MustEnd(others_, now_ + absl::Seconds(13)));
}

TEST_F(PreemptedSupervisionTest, ASecondSigtermEndsItAtOnce) {
  Saw(TRAINING);
  EXPECT_TRUE(supervision_.Signalled(SIGTERM, now_));
  EXPECT_FALSE(supervision_.MustEnd(others_, now_));
  EXPECT_FALSE(supervision_.Signalled(SIGTERM, now_));
  EXPECT_TRUE(supervision_.MustEnd(others_, now_));
  Expect(kPreempted, "interrupted by SIGTERM");
}

TEST_F(PreemptedSupervisionTest, SoDoesCtrlC) {
  Saw(TRAINING);
  EXPECT_TRUE(supervision_.Signalled(SIGTERM, now_));
  EXPECT_FALSE(supervision_.Signalled(SIGINT, now_));
  EXPECT_TRUE(supervision_.MustEnd(others_, now_));
  Expect(kFailed, "interrupted by SIGINT");
}

TEST_F(PreemptedSupervisionTest, BeforeItTrainsThereIsNothingToWaitFor) {
  Saw(PREPARING);
  EXPECT_FALSE(supervision_.Signalled(SIGTERM, now_));
  EXPECT_TRUE(supervision_.MustEnd(others_, now_));
}

TEST_F(PreemptedSupervisionTest, OneThatFinishesInTimeHasFinished) {
  Saw(SAVING);
  EXPECT_TRUE(supervision_.Signalled(SIGTERM, now_));
  Saw(FINISHED);
  for (const char* name : {"worker-0", "shard-0", "coordinator"}) Ended(name, 0, "served");
  Expect(kFinished, "");
}

TEST_F(SupervisionTest, AFinishedJobWhoseProcessStaysHasFailed) {
  Saw(FINISHED);
  Ended("worker-0", 0, "");
  EXPECT_TRUE(supervision_.MustEnd({"shard-1"}, now_ + absl::Seconds(30)));
  Expect(kFailed, "shard-1 had to be ended: still there 30s after worker-0 had finished");
}

TEST_F(SupervisionTest, WhoWasKilledIsStartedAgainSoOften) {
  supervision_ = Supervision({.patience = absl::Seconds(30), .max_restarts = 2}, kStart);
  const ChildExit killed{.signal = SIGKILL};
  EXPECT_FALSE(supervision_.Restarts("worker-0", killed)) << "no coordinator has answered";
  Saw(TRAINING);
  EXPECT_FALSE(supervision_.Restarts("shard-1", {.code = 1})) << "it has said why, and would again";
  EXPECT_TRUE(supervision_.Restarts("shard-1", killed));
  Saw(PREPARING);
  EXPECT_TRUE(supervision_.Restarts("shard-1", killed));
  EXPECT_EQ(supervision_.restarts(), 2u);
  EXPECT_FALSE(supervision_.MustEnd(others_, now_ + absl::Hours(1)));
  // Then the run ends with what happened.
  EXPECT_FALSE(supervision_.Restarts("shard-1", killed));
  Killed("shard-1");
  EXPECT_TRUE(supervision_.MustEnd(others_, now_ + absl::Seconds(30)));
  Expect(kFailed, absl::StrCat("shard-1 was ended by SIGKILL; its log is ", kLog));
}

TEST_F(SupervisionTest, AWorkerWithoutWhichTheJobEndsIsNotStartedAgain) {
  const ChildExit killed{.signal = SIGKILL};
  Supervision::Limits limits = {.patience = absl::Seconds(30), .max_restarts = 2};
  limits.waits_for_workers = false;
  supervision_ = Supervision(limits, kStart);
  Saw(TRAINING);
  EXPECT_FALSE(supervision_.Restarts("worker-0", killed));
  EXPECT_TRUE(supervision_.Restarts("shard-0", killed));
  limits.spare_workers = 1;
  supervision_ = Supervision(limits, kStart);
  Saw(TRAINING);
  EXPECT_TRUE(supervision_.Restarts("worker-0", killed)) << "the job goes on meanwhile";
}

TEST_F(SupervisionTest, WhoseCoordinatorWaitsForAnotherOneWhileMembersGatherIsStartedAgainToo) {
  supervision_ = Supervision({.patience = absl::Seconds(30), .max_restarts = 2}, kStart);
  Saw(GATHERING);
  const ChildExit killed{.signal = SIGKILL};
  EXPECT_FALSE(supervision_.Restarts("shard-0", killed)) << "without it the job ends";
  EXPECT_FALSE(supervision_.Restarts("coordinator", killed));
  EXPECT_FALSE(supervision_.Restarts("worker-0", {.code = kWrongUsage}));
  EXPECT_TRUE(supervision_.Restarts("worker-1", killed));
  EXPECT_TRUE(supervision_.Restarts("stage-0", killed));
  EXPECT_FALSE(supervision_.MustEnd(others_, now_ + absl::Hours(1)));
  // One that crashes at each start ends the run, at once as before.
  EXPECT_FALSE(supervision_.Restarts("worker-1", killed));
  Killed("worker-1");
  EXPECT_TRUE(supervision_.MustEnd(others_, now_));
}

TEST_F(SupervisionTest, NobodyIsStartedForAJobThatIsOver) {
  supervision_ = Supervision({.patience = absl::Seconds(30), .max_restarts = 2}, kStart);
  for (const Phase phase : {FINISHED, FAILED}) {
    Saw(phase);
    EXPECT_FALSE(supervision_.Restarts("shard-1", {.signal = SIGKILL}));
  }
}

}  // namespace
}  // namespace parley
