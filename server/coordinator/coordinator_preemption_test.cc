// Somebody was told to end: the job goes on for a checkpoint, for as long as it has time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/coordinator/coordinator_fixture.h"

namespace parley {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kWorker[] = "worker 1 at 127.0.0.1:4103 (pid 103): preempted by SIGTERM";

class CoordinatorPreemptionTest : public testing::Test {
 protected:
  CoordinatorPreemptionTest()
      : job_([] {
          auto options = CoordinatorFixture::DefaultOptions(2, 2);
          options.preemption_grace = absl::Seconds(25);
          options.warning_grace = absl::Seconds(85);
          options.autonomy = absl::Seconds(60);
          return options;
        }()) {}

  absl::Status Preempt(CoordinatorFixture::Process& process,
                       const std::string& reason = "preempted by SIGTERM",
                       absl::Duration time = absl::ZeroDuration()) {
    FailRequest request;
    *request.mutable_header() = process.header;
    request.set_reason(reason);
    request.set_preempted(true);
    request.set_checkpoint_first(true);
    request.set_micros(absl::ToInt64Microseconds(time));
    Replies replies;
    return job_.core.Fail(request, job_.now, replies).status();
  }

  // The leader decides a step and, if told so, marks its version.
  void Decide(bool mark = false) {
    const Verdict verdict = job_.NextVerdict();
    JobProgress progress;
    progress.set_step(verdict.step());
    if (mark) mark_.set_version(verdict.step());
    if (mark_.version() != 0) *progress.mutable_mark() = mark_;
    ASSERT_TRUE(job_.Report(*job_.shards[0], {verdict}, progress).ok());
  }

  FileWork TheWork() {
    auto work = job_.core.TakeFileWork();
    EXPECT_EQ(work.size(), 1u);
    return work.empty() ? FileWork() : work[0];
  }

  // From the folder to the commit.
  void Write(uint64_t step) {
    job_.Done(TheWork());
    for (auto* shard : job_.shards) {
      ASSERT_TRUE(job_.ReportFile(job_.FileOf(*shard, step)).ok());
    }
    job_.Done(TheWork());
    (void)job_.core.TakeFileWork();  // the removal of old ones
  }

  uint64_t Asked() {
    job_.shards[0]->seen_revision = 0;
    job_.Watch(*job_.shards[0]);
    return (*job_.shards[0]->watched)->checkpoints_asked();
  }

  void ExpectEnded(const std::string& text) {
    ASSERT_EQ(job_.core.phase(), FAILED);
    EXPECT_EQ(job_.core.cause()->text(), text);
    EXPECT_TRUE(job_.core.cause()->preempted());
  }
  std::string Cause() { return job_.core.cause() ? job_.core.cause()->text() : "none"; }

  CoordinatorFixture job_;
  CheckpointMark mark_;
};

TEST_F(CoordinatorPreemptionTest, TheJobGoesOnUntilACheckpointIsWholeAndNamesIt) {
  job_.Train();
  Decide();
  job_.Watch(*job_.shards[0]);
  job_.shards[0]->seen_revision = job_.core.revision();
  job_.Watch(*job_.shards[0]);
  ASSERT_FALSE(job_.shards[0]->watched.has_value());
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  ASSERT_TRUE(job_.shards[0]->watched.has_value()) << "the leader is told at once";
  EXPECT_EQ((*job_.shards[0]->watched)->checkpoints_asked(), 1u);
  EXPECT_EQ(job_.core.phase(), TRAINING);
  EXPECT_EQ(job_.Status().preemption(), kWorker);
  Decide(/*mark=*/true);
  Decide();
  EXPECT_EQ(job_.core.phase(), TRAINING);
  Write(2);
  ExpectEnded(std::string(kWorker) +
              "; the job can go on with checkpoint.start_from=/job/checkpoints/step-00000002; "
              "last decided step 3");
  EXPECT_EQ(job_.core.cause()->member(), job_.workers[1]->header.member());
  EXPECT_EQ(job_.Status().preemption(), "");
}

TEST_F(CoordinatorPreemptionTest, TheFirstOneIsTheCauseAndEveryMemberMayBeTheOne) {
  job_.Train();
  ASSERT_TRUE(Preempt(*job_.shards[1], "preempted by SIGUSR1").ok());
  ASSERT_TRUE(Preempt(*job_.workers[0]).ok());
  ASSERT_TRUE(Preempt(*job_.shards[1], "preempted by SIGUSR1").ok());
  EXPECT_EQ(Asked(), 1u);
  Decide(/*mark=*/true);
  Write(1);
  EXPECT_THAT(Cause(), StartsWith("shard 1 at 127.0.0.1:4101 (pid 101): preempted by SIGUSR1; "));
}

TEST_F(CoordinatorPreemptionTest, TheCoordinatorItselfGoesTheSameWay) {
  job_.Train();
  {
    Replies replies;
    job_.core.PreemptItself("preempted by SIGTERM", absl::Seconds(25), job_.now, replies);
  }
  EXPECT_EQ(job_.core.phase(), TRAINING);
  Decide(/*mark=*/true);
  Write(1);
  ExpectEnded(
      "coordinator at 127.0.0.1:4000: preempted by SIGTERM; the job can go on with "
      "checkpoint.start_from=/job/checkpoints/step-00000001; last decided step 1");
}

TEST_F(CoordinatorPreemptionTest, AnOperatorStopsTheJobInTheSameWayAndHasMoreTime) {
  job_.Train();
  Decide();
  const auto told = job_.Stop();
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->step(), 1u);
  EXPECT_TRUE(job_.core.DurableState().stopped());
  EXPECT_EQ(job_.Status().preemption(),
            "coordinator at 127.0.0.1:4000: stopped by an operator (`parley stop`)");
  ASSERT_TRUE(job_.Stop().ok()) << "may be repeated";
  job_.Pass(absl::Seconds(50));  // more than preemption_grace, less than stall_timeout
  EXPECT_EQ(job_.core.phase(), TRAINING);
  Decide(/*mark=*/true);
  Write(2);
  ExpectEnded(
      "coordinator at 127.0.0.1:4000: stopped by an operator (`parley stop`); the job can go on "
      "with checkpoint.start_from=/job/checkpoints/step-00000002; last decided step 2");
  EXPECT_EQ(job_.Stop().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(job_.core.DurableState().stopped());
}

TEST_F(CoordinatorPreemptionTest, AStopEndsAJobThatDoesNotTrainAtOnce) {
  job_.StartAndJoin(SHARD);
  ASSERT_TRUE(job_.Stop("no more money").ok());
  ExpectEnded("coordinator at 127.0.0.1:4000: no more money; last decided step 0");
  EXPECT_TRUE(job_.core.DurableState().stopped());
}

TEST_F(CoordinatorPreemptionTest, AStopHasItsTime) {
  job_.Train();
  ASSERT_TRUE(job_.Stop().ok());
  job_.Pass(absl::Seconds(59));
  EXPECT_EQ(job_.core.phase(), TRAINING);
  job_.Pass(absl::Seconds(2));
  EXPECT_THAT(Cause(), StartsWith("coordinator at 127.0.0.1:4000: stopped by an operator"));
  EXPECT_THAT(Cause(), HasSubstr("within 1m"));
}

TEST_F(CoordinatorPreemptionTest, WhoIsPreemptedWhileTheJobStopsHasLess) {
  job_.Train();
  ASSERT_TRUE(job_.Stop().ok());
  job_.Pass(absl::Seconds(10));
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  job_.Pass(absl::Seconds(24));
  EXPECT_EQ(job_.core.phase(), TRAINING);
  job_.Pass(absl::Seconds(2));
  EXPECT_THAT(Cause(), StartsWith("coordinator at 127.0.0.1:4000: stopped by an operator"));
  EXPECT_THAT(Cause(), HasSubstr("within 25s"));
}

TEST_F(CoordinatorPreemptionTest, WhoIsWarnedEarlyHasTheTimeThatItSays) {
  job_.Train();
  ASSERT_TRUE(Preempt(*job_.workers[1], "preempted by SIGUSR1", absl::Seconds(85)).ok());
  // The others are told at about the same time, and say the same.
  job_.Pass(absl::Seconds(1));
  ASSERT_TRUE(Preempt(*job_.shards[0], "preempted by SIGUSR1", absl::Seconds(85)).ok());
  job_.Pass(absl::Seconds(40));
  Decide();
  job_.Pass(absl::Seconds(40));
  EXPECT_EQ(job_.core.phase(), TRAINING);
  Decide(/*mark=*/true);
  Write(2);
  EXPECT_THAT(Cause(), HasSubstr("preempted by SIGUSR1; the job can go on with"));
}

TEST_F(CoordinatorPreemptionTest, ButNoMoreThanTheJobFileGives) {
  job_.Train();
  ASSERT_TRUE(Preempt(*job_.workers[1], "preempted by SIGUSR1", absl::Hours(100000)).ok());
  job_.Pass(absl::Seconds(84));
  EXPECT_EQ(job_.core.phase(), TRAINING);
  job_.Pass(absl::Seconds(2));
  EXPECT_THAT(Cause(), HasSubstr("within 1m25s"));
}

TEST_F(CoordinatorPreemptionTest, ALaterSigtermLeavesLess) {
  job_.Train();
  {
    Replies replies;
    job_.core.PreemptItself("preempted by SIGUSR1", absl::Seconds(85), job_.now, replies);
  }
  job_.Pass(absl::Seconds(40));
  EXPECT_EQ(job_.core.phase(), TRAINING);
  Decide();
  ASSERT_TRUE(Preempt(*job_.workers[0]).ok());
  job_.Pass(absl::Seconds(24));
  EXPECT_EQ(job_.core.phase(), TRAINING);
  job_.Pass(absl::Seconds(2));
  EXPECT_THAT(Cause(), StartsWith("coordinator at 127.0.0.1:4000: preempted by SIGUSR1"));
  EXPECT_THAT(Cause(), HasSubstr("within 25s"));
}

TEST_F(CoordinatorPreemptionTest, WhoComesForTheNextRunWaitsForItsCoordinator) {
  job_.Train();
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  Decide(/*mark=*/true);
  Write(1);
  ASSERT_EQ(job_.core.phase(), FAILED);
  const absl::Status early = job_.Join(job_.Start(WORKER));
  EXPECT_EQ(early.code(), absl::StatusCode::kUnavailable) << early;
  EXPECT_THAT(std::string(early.message()), HasSubstr("another coordinator"));
}

TEST_F(CoordinatorPreemptionTest, WhoHadAPlaceInTheRunIsToldHowItEnded) {
  job_.Train();
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  Decide(/*mark=*/true);
  Write(1);
  JoinRequest request = job_.JoinOf(job_.Start(WORKER));
  request.set_again(true);
  Replies replies;
  EXPECT_EQ(job_.core.Join(request, job_.now, replies).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(CoordinatorPreemptionTest, NobodyWaitsForAnotherOneAfterAStopOrAFailure) {
  job_.Train();
  ASSERT_TRUE(job_.Stop().ok());
  Decide(/*mark=*/true);
  Write(1);
  ASSERT_EQ(job_.core.phase(), FAILED);
  EXPECT_EQ(job_.Join(job_.Start(WORKER)).code(), absl::StatusCode::kFailedPrecondition);
  CoordinatorFixture failed(2, 2);
  failed.Train();
  ASSERT_TRUE(failed.Fail(*failed.workers[0], "no data", /*preempted=*/false).ok());
  EXPECT_EQ(failed.Join(failed.Start(WORKER)).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CoordinatorPreemptionTest, OneThatIsBeingWrittenIsNotEnough) {
  job_.Train();
  Decide(/*mark=*/true);
  job_.Done(TheWork());
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  for (auto* shard : job_.shards) ASSERT_TRUE(job_.ReportFile(job_.FileOf(*shard, 1)).ok());
  job_.Done(TheWork());
  (void)job_.core.TakeFileWork();
  EXPECT_EQ(job_.core.phase(), TRAINING);
  Decide(/*mark=*/true);
  Write(2);
  EXPECT_THAT(Cause(), HasSubstr("start_from=/job/checkpoints/step-00000002;"));
}

TEST_F(CoordinatorPreemptionTest, ABarrierMayBeAtTheStepThatIsKnown) {
  job_.Train();
  Decide();
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  mark_.set_version(1);
  JobProgress progress;
  progress.set_step(1);
  *progress.mutable_mark() = mark_;
  ASSERT_TRUE(job_.Report(*job_.shards[0], {}, progress).ok());
  Write(1);
  EXPECT_THAT(Cause(), HasSubstr("start_from=/job/checkpoints/step-00000001;"));
}

TEST_F(CoordinatorPreemptionTest, NorIsItsFailureTheEnd) {
  job_.Train();
  Decide(/*mark=*/true);
  const FileWork create = TheWork();
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  job_.Done(create, absl::ResourceExhaustedError("no space left"));
  (void)job_.core.TakeFileWork();
  EXPECT_EQ(job_.core.phase(), TRAINING);
  Decide(/*mark=*/true);
  Write(2);
  EXPECT_THAT(Cause(), HasSubstr("start_from=/job/checkpoints/step-00000002;"));
}

TEST_F(CoordinatorPreemptionTest, WithoutTimeTheJobEndsAndSaysWhatThereIs) {
  job_.Train();
  Decide(/*mark=*/true);
  Write(1);
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  Decide(/*mark=*/true);
  job_.Done(TheWork());
  ASSERT_TRUE(job_.ReportFile(job_.FileOf(*job_.shards[0], 2)).ok());
  job_.Pass(absl::Milliseconds(24500));
  EXPECT_EQ(job_.core.phase(), TRAINING);
  job_.Pass(absl::Seconds(1));
  ExpectEnded(std::string(kWorker) +
              "; no checkpoint could be written within 25s; the last whole one is "
              "/job/checkpoints/step-00000001; last decided step 2");
}

TEST_F(CoordinatorPreemptionTest, TheCoordinatorDoesNotWaitLongForThoseThatStay) {
  job_.Train();
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  job_.Pass(absl::Seconds(25));
  ASSERT_EQ(job_.core.phase(), FAILED);
  EXPECT_FALSE(job_.core.MayExit(job_.now));
  job_.Pass(absl::Milliseconds(500));
  EXPECT_TRUE(job_.core.MayExit(job_.now));
}

TEST_F(CoordinatorPreemptionTest, EvenWhereItHearsNobody) {
  job_.Train();
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  for (auto& process : job_.processes) process->alive = false;
  job_.Pass(absl::Seconds(26));
  EXPECT_THAT(Cause(), HasSubstr("within 25s; there is none; last decided step 0"));
}

TEST_F(CoordinatorPreemptionTest, ACheckpointThatFailsEndsItWithItsReason) {
  job_.Train();
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  Decide(/*mark=*/true);
  job_.Done(TheWork(), absl::ResourceExhaustedError("no space left"));
  ASSERT_EQ(job_.core.phase(), FAILED);
  EXPECT_TRUE(job_.core.cause()->preempted());
  EXPECT_THAT(Cause(), StartsWith(std::string(kWorker) + "; no checkpoint could be written: "));
  EXPECT_THAT(Cause(), HasSubstr("no space left"));
  EXPECT_THAT(Cause(), EndsWith("; there is none; last decided step 1"));
}

TEST_F(CoordinatorPreemptionTest, WhoIsLostMeanwhileWasPreemptedToo) {
  job_.Train();
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  job_.workers[1]->alive = false;
  job_.Pass(absl::Seconds(11));
  ASSERT_EQ(job_.core.phase(), FAILED);
  EXPECT_TRUE(job_.core.cause()->preempted());
  EXPECT_THAT(Cause(), StartsWith(std::string(kWorker) + "; no checkpoint could be written: "));
  EXPECT_THAT(Cause(), HasSubstr("has not been heard of since"));
}

TEST_F(CoordinatorPreemptionTest, BeforeItTrainsItEndsAtOnce) {
  job_.Gather();
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  ExpectEnded(std::string(kWorker) + "; last decided step 0");
}

TEST_F(CoordinatorPreemptionTest, WhileItSavesItFinishes) {
  job_.Train();
  for (int step = 1; step <= 10; ++step) Decide();
  for (auto* worker : job_.workers) ASSERT_TRUE(job_.Finish(*worker, 10).ok());
  ASSERT_EQ(job_.core.phase(), SAVING);
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  EXPECT_EQ(job_.core.phase(), SAVING);
  Write(10);
  EXPECT_EQ(job_.core.phase(), FINISHED);
}

TEST_F(CoordinatorPreemptionTest, ButNotLongerThanItHasTime) {
  job_.Train();
  for (int step = 1; step <= 10; ++step) Decide();
  for (auto* worker : job_.workers) ASSERT_TRUE(job_.Finish(*worker, 10).ok());
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  job_.Done(TheWork());
  job_.Pass(absl::Seconds(26));
  ASSERT_EQ(job_.core.phase(), FAILED);
  EXPECT_TRUE(job_.core.cause()->preempted());
}

TEST_F(CoordinatorPreemptionTest, WhenAWorkerHasFinishedTheJobMay) {
  job_.Train();
  for (int step = 1; step <= 9; ++step) Decide();
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  Decide(/*mark=*/true);
  ASSERT_TRUE(job_.Finish(*job_.workers[0], 10).ok());
  Write(10);
  EXPECT_EQ(job_.core.phase(), TRAINING) << "of the last step";
  ASSERT_TRUE(job_.Finish(*job_.workers[1], 10).ok());
  EXPECT_EQ(job_.core.phase(), FINISHED);
}

TEST_F(CoordinatorPreemptionTest, WhoHasNoPlaceInTheViewEndsNothing) {
  auto options = CoordinatorFixture::DefaultOptions(1, 2);
  options.job.mutable_cluster()->set_min_workers(1);
  options.preemption_grace = absl::Seconds(25);
  CoordinatorFixture job(options);
  job.Train();
  job.workers[0]->alive = false;
  job.Pass(absl::Seconds(11));
  ASSERT_EQ(job.core.phase(), TRAINING);
  auto& late = job.StartAndJoin(WORKER);
  job.Watch(late);
  job.Watch(late);
  ASSERT_FALSE(late.watched.has_value()) << "it is parked";
  FailRequest request;
  *request.mutable_header() = late.header;
  request.set_preempted(true);
  request.set_checkpoint_first(true);
  {
    Replies replies;
    ASSERT_TRUE(job.core.Fail(request, job.now, replies).ok());
  }
  EXPECT_EQ(job.core.phase(), TRAINING);
  EXPECT_EQ(job.Status().preemption(), "");
  // No end of the job will come to it: it hears at once that it may go.
  ASSERT_TRUE(late.watched.has_value());
  EXPECT_EQ(late.watched->status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(job.Heartbeat(late).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(job.StartAndJoin(WORKER).ordinal, late.ordinal) << "its place is free";
}

TEST_F(CoordinatorPreemptionTest, ANewCoordinatorGoesOnWithIt) {
  job_.Train();
  Decide(/*mark=*/true);
  Write(1);
  ASSERT_TRUE(Preempt(*job_.workers[1]).ok());
  const uint64_t asked = Asked();
  CoordinatorCore next(job_.options_);
  ASSERT_TRUE(next.Restore(job_.core.DurableState()).ok());
  job_.now += absl::Seconds(12);
  next.Open(2, "127.0.0.1:4001", job_.now);
  EXPECT_EQ(next.GetStatus({}, job_.now)->preemption(), kWorker);
  WatchRequest watch;
  *watch.mutable_header() = job_.shards[0]->header;
  uint64_t told = 0;
  {
    Replies replies;
    next.Watch(watch, {job_.now, job_.now + absl::Seconds(10)}, replies,
               [&](absl::StatusOr<SharedJobState> reply) { told = (*reply)->checkpoints_asked(); });
  }
  EXPECT_EQ(told, asked) << "the leader may not have heard it";
  Replies replies;
  next.Tick(job_.now + absl::Seconds(12), replies);
  EXPECT_EQ(next.phase(), TRAINING);
  next.Tick(job_.now + absl::Seconds(13), replies);
  ASSERT_EQ(next.phase(), FAILED) << "the time is that of the signal";
  EXPECT_THAT(next.cause()->text(), StartsWith(kWorker));
  EXPECT_THAT(next.cause()->text(), HasSubstr("step-00000001"));
}

TEST_F(CoordinatorPreemptionTest, WithoutGraceItEndsAtOnce) {
  CoordinatorFixture job(1, 2);
  job.Train();
  FailRequest request;
  *request.mutable_header() = job.shards[0]->header;
  request.set_reason("preempted by SIGTERM");
  request.set_preempted(true);
  request.set_checkpoint_first(true);
  {
    Replies replies;
    ASSERT_TRUE(job.core.Fail(request, job.now, replies).ok());
  }
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_EQ(job.core.cause()->text(),
            "shard 0 at 127.0.0.1:4100 (pid 100): preempted by SIGTERM; last decided step 0");
}

}  // namespace
}  // namespace parley
