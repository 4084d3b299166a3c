// How a job fails: every loss is found in time, the first cause wins, and all are told it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"
#include "server/coordinator/pipeline_fixture.h"

namespace parley {
namespace {

using absl::StatusCode;
using Process = CoordinatorFixture::Process;

constexpr absl::Duration kLiveness = absl::Seconds(10);

void ParkAll(CoordinatorFixture& job) {
  for (auto& process : job.processes) {
    if (!process->alive) continue;
    process->seen_revision = 0;
    job.Watch(*process);
    job.Watch(*process);
    ASSERT_FALSE(process->watched.has_value());
  }
}

enum class When { kGathering, kPreparing, kTraining, kSaving };

// A job in that phase with two shards and two workers, so many stages behind each of them, no
// restarts, and all Watch calls parked.
std::unique_ptr<CoordinatorFixture> JobIn(When when, uint32_t stages = 0) {
  auto job = std::make_unique<CoordinatorFixture>(Pipelines(2, stages, /*max_restarts=*/0));
  if (when == When::kGathering) {
    for (int i = 0; i < 2; ++i) job->shards.push_back(&job->StartAndJoin(SHARD));
    for (uint32_t i = 0; i < 2 * stages; ++i) job->stages.push_back(&job->StartAndJoin(STAGE));
    for (int i = 0; i < 2; ++i) job->workers.push_back(&job->StartAndJoin(WORKER));
  } else if (when == When::kPreparing) {
    job->Gather();
  } else {
    job->Train();
    for (int step = 1; step <= 3; ++step) {
      EXPECT_TRUE(job->Report(*job->shards[0], {job->NextVerdict()}).ok());
    }
    if (when == When::kSaving) {
      for (Process* worker : job->workers) EXPECT_TRUE(job->Finish(*worker, 3).ok());
      for (const FileWork& work : job->core.TakeFileWork()) job->Done(work);
      EXPECT_EQ(job->core.phase(), SAVING);
    }
  }
  job->Pass(absl::Seconds(20));  // all is well
  EXPECT_FALSE(job->core.cause().has_value());
  ParkAll(*job);
  return job;
}

// The victim is counted in the order of joining; `later` is against the rhythm of heartbeats.
void ExpectFoundInTime(When when, uint32_t stages, size_t victim, absl::Duration later) {
  auto job = JobIn(when, stages);
  job->Pass(later);
  Process& dead = *job->processes[victim];
  dead.alive = false;
  const absl::Time killed = job->now;
  job->Pass(2 * kLiveness);
  ASSERT_EQ(job->core.phase(), FAILED);
  const FirstCause& cause = *job->core.cause();
  EXPECT_EQ(cause.member(), dead.header.member());
  EXPECT_NE(cause.text().find(dead.address), std::string::npos) << cause.text();
  EXPECT_NE(cause.text().find("has not been heard of since"), std::string::npos);
  const uint64_t decided = when == When::kTraining || when == When::kSaving ? 3 : 0;
  EXPECT_EQ(cause.last_decided_step(), decided);
  EXPECT_FALSE(cause.preempted());
  for (auto& process : job->processes) {
    if (!process->alive) continue;
    ASSERT_TRUE(process->watched.has_value() && process->watched->ok());
    EXPECT_EQ((*process->watched)->phase(), FAILED);
    EXPECT_EQ((*process->watched)->cause().text(), cause.text());
    EXPECT_LE(process->watched_at - killed, kLiveness + kLiveness / 20);
    EXPECT_GE(process->watched_at - killed, kLiveness * 3 / 4 - kLiveness / 20);
  }
}

TEST(CoordinatorFailureTest, ADeadMemberOfEachRoleIsFoundWithinTheLeaseAndAllAreTold) {
  for (When when : {When::kGathering, When::kPreparing, When::kTraining, When::kSaving}) {
    for (const uint32_t stages : {0u, 1u}) {
      for (size_t victim = 0; victim < 4 + 2 * stages; ++victim) {
        for (int offset = 0; offset < 5; ++offset) {
          ExpectFoundInTime(when, stages, victim, absl::Milliseconds(500 * offset));
        }
      }
    }
  }
}

TEST(CoordinatorFailureTest, TheCauseNamesMemberAddressSilenceAndLastStep) {
  CoordinatorFixture job(1, 2);
  job.Train();
  ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  for (Process* process : {job.shards[0], job.workers[0], job.workers[1]}) {
    ASSERT_TRUE(job.Heartbeat(*process).ok());
  }
  job.workers[1]->alive = false;
  job.Pass(absl::Seconds(11));
  EXPECT_EQ(job.core.cause()->text(),
            "worker 1 at 127.0.0.1:4102 (pid 102) has not been heard of since "
            "2026-11-21T03:00:00.123Z (10.0 s); last decided step 1");
}

TEST(CoordinatorFailureTest, TheCauseOfAMemberWithoutAnAddressSaysOnWhichMachineItRuns) {
  CoordinatorFixture job(1, 2);
  job.StartAndJoin(SHARD);
  // Two processes of a user's own program on one machine.
  for (uint32_t ordinal : {0, 1}) {
    Process& worker = job.Start(WORKER);
    worker.address.clear();
    ASSERT_TRUE(job.Join(worker).ok());
    EXPECT_EQ(worker.ordinal, ordinal);
  }
  job.processes[2]->alive = false;
  job.Pass(absl::Seconds(11));
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_EQ(
      job.core.cause()->text().find("worker 1 on node7 (pid 102) has not been heard of since "), 0u)
      << job.core.cause()->text();
}

TEST(CoordinatorFailureTest, ASecondFailureDoesNotReplaceTheFirst) {
  CoordinatorFixture job(1, 2);
  job.Train();
  ParkAll(job);
  ASSERT_TRUE(job.Fail(*job.workers[1], "out of memory").ok());
  const std::string first = job.core.cause()->text();
  EXPECT_EQ(first, "worker 1 at 127.0.0.1:4102 (pid 102): out of memory; last decided step 0");
  ASSERT_TRUE(job.Fail(*job.workers[0], "the other one is gone").ok());
  ASSERT_TRUE(job.Leave(*job.shards[0]).ok());
  job.workers[0]->alive = false;
  job.Pass(absl::Seconds(30));
  {
    Replies replies;
    job.core.FailItself("SIGINT", job.now, replies);
  }
  EXPECT_EQ(job.core.cause()->text(), first);
  EXPECT_FALSE(job.core.cause()->preempted());
  EXPECT_EQ((*job.workers[0]->watched)->cause().text(), first);
}

TEST(CoordinatorFailureTest, APreemptedMemberMarksTheCause) {
  CoordinatorFixture job(1, 1);
  job.Train();
  ASSERT_TRUE(job.Fail(*job.workers[0], "preempted by SIGUSR1", true).ok());
  EXPECT_TRUE(job.core.cause()->preempted());
}

TEST(CoordinatorFailureTest, TheCoordinatorsOwnSignalFailsTheJobAsPreempted) {
  CoordinatorFixture job(1, 1);
  job.Gather();
  ParkAll(job);
  {
    Replies replies;
    job.core.FailItself("preempted by SIGINT", job.now, replies);
  }
  EXPECT_EQ(job.core.cause()->text(),
            "coordinator at 127.0.0.1:4000: preempted by SIGINT; last decided step 0");
  EXPECT_TRUE(job.core.cause()->preempted());
  EXPECT_EQ((*job.shards[0]->watched)->cause().text(), job.core.cause()->text());
}

TEST(CoordinatorFailureTest, ALineBreakInAReasonDoesNotBreakTheLastLine) {
  CoordinatorFixture job(1, 1);
  job.Gather();
  ASSERT_TRUE(job.Fail(*job.workers[0], "first\nsecond\n").ok());
  EXPECT_EQ(job.core.cause()->text(),
            "worker 0 at 127.0.0.1:4101 (pid 101): first second; last decided step 0");
}

// What nobody can read is the newest record, and an answer to all.
void ExpectCanBeRead(const CoordinatorCore& core) {
  CoordinatorState read;
  EXPECT_TRUE(read.ParseFromString(core.DurableState().SerializeAsString()));
}

TEST(CoordinatorFailureTest, WhatAProcessWaitsForIsCutWhereACharacterBegins) {
  CoordinatorFixture job(1, 2);
  job.Train();
  HeartbeatRequest waits;
  waits.set_moves(1);
  waits.set_waits_for(std::string(499, 'a') + "\xc3\xa9");
  while (job.core.phase() == TRAINING) {
    job.Pass(absl::Seconds(2), /*getting_on=*/false);
    waits.set_progress(waits.progress() + 1);
    for (auto* const worker : job.workers) EXPECT_TRUE(job.Heartbeat(*worker, waits).ok());
  }
  EXPECT_NE(job.core.cause()->text().find(std::string(499, 'a')), std::string::npos)
      << job.core.cause()->text();
  ExpectCanBeRead(job.core);
}

TEST(CoordinatorFailureTest, AReasonIsOneLineThatCanBeReadAndHasAnEnd) {
  CoordinatorFixture job(1, 2);
  job.Train();
  ASSERT_TRUE(job.Fail(*job.workers[0], "caf\xe9.jpg\n" + std::string(1 << 20, 'x')).ok());
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_NE(job.core.cause()->text().find(": caf\xef\xbf\xbd.jpg xxx"), std::string::npos);
  EXPECT_LT(job.core.cause()->text().size(), 20000u);
  ExpectCanBeRead(job.core);
}

TEST(CoordinatorFailureTest, AShardThatHangsInSavingEndsTheJobByName) {
  auto job = JobIn(When::kSaving);
  ASSERT_TRUE(job->ReportFile(job->FileOf(*job->shards[0], 3)).ok());
  job->Pass(absl::Minutes(3));
  EXPECT_EQ(job->core.phase(), SAVING) << "it writes as long as its counter rises";
  job->Pass(absl::Minutes(3), /*getting_on=*/false);
  ASSERT_EQ(job->core.phase(), FAILED);
  EXPECT_NE(job->core.cause()->text().find("shard 1 at 127.0.0.1:4101 (pid 101) has not written"),
            std::string::npos)
      << job->core.cause()->text();
}

TEST(CoordinatorFailureTest, ACheckpointThatAShardCannotWriteFailsTheJob) {
  auto job = JobIn(When::kSaving);
  auto report = job->FileOf(*job->shards[1], 3);
  report.clear_file();
  report.set_error("/job/checkpoints/step-00000003/shard-1.safetensors: no space left on device");
  ASSERT_TRUE(job->ReportFile(report).ok());
  ASSERT_EQ(job->core.phase(), FAILED);
  EXPECT_EQ(job->core.cause()->text(),
            "shard 1 at 127.0.0.1:4101 (pid 101): the checkpoint of step 3 could not be written: "
            "/job/checkpoints/step-00000003/shard-1.safetensors: no space left on device; last "
            "decided step 3");
  EXPECT_EQ(job->Status().checkpoint_directory(), "");
}

TEST(CoordinatorFailureTest, AFolderOrManifestThatCannotBeWrittenFailsTheJob) {
  CoordinatorFixture job(1, 1);
  job.Train();
  ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  ASSERT_TRUE(job.Finish(*job.workers[0], 1).ok());
  job.Done(job.core.TakeFileWork().at(0), absl::ResourceExhaustedError("disk full"));
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_EQ(
      job.core.cause()->text(),
      "coordinator at 127.0.0.1:4000: the checkpoint /job/checkpoints/step-00000001 could not "
      "be begun: disk full; last decided step 1");
}

TEST(CoordinatorFailureTest, LeavingBeforeTheEndFailsTheJob) {
  CoordinatorFixture job(1, 1);
  job.Train();
  ASSERT_TRUE(job.Leave(*job.workers[0]).ok());
  EXPECT_EQ(job.core.cause()->text(),
            "worker 0 at 127.0.0.1:4101 (pid 101): left before the end of the job; last decided "
            "step 0");
}

TEST(CoordinatorFailureTest, ARestartedProcessFailsARunningJobAndIsNotTakenIn) {
  CoordinatorFixture job(1, 1);
  job.Train();
  ParkAll(job);
  auto& again = job.Start(WORKER);
  again.address = job.workers[0]->address;
  EXPECT_EQ(job.Join(again).code(), StatusCode::kFailedPrecondition);
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_NE(job.core.cause()->text().find("worker 0 at 127.0.0.1:4101 (pid 101): a new process "
                                          "(pid 102) has come at its address"),
            std::string::npos);
  EXPECT_EQ(job.workers[0]->watched->status().code(), StatusCode::kAborted);
  EXPECT_EQ((*job.shards[0]->watched)->phase(), FAILED);
}

TEST(CoordinatorFailureTest, NobodyJoinsAJobThatHasEnded) {
  CoordinatorFixture job(1, 1);
  auto& worker = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Fail(worker, "no data").ok());
  const absl::Status status = job.Join(job.Start(SHARD));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("no data"), absl::string_view::npos);
  EXPECT_TRUE(job.Join(worker).ok()) << "repeating is no joining";
}

TEST(CoordinatorFailureTest, AFailedCoordinatorGoesWhenAllHaveLeftOrAfterLiveness) {
  CoordinatorFixture job(1, 1);
  job.Train();
  EXPECT_FALSE(job.core.MayExit(job.now));
  ASSERT_TRUE(job.Fail(*job.workers[0], "x").ok());
  EXPECT_FALSE(job.core.MayExit(job.now));
  ASSERT_TRUE(job.Leave(*job.workers[0]).ok());
  EXPECT_FALSE(job.core.MayExit(job.now));
  const absl::Time failed = job.now;
  job.Pass(absl::Seconds(9));
  EXPECT_FALSE(job.core.MayExit(job.now));
  EXPECT_TRUE(job.core.MayExit(failed + kLiveness));
  ASSERT_TRUE(job.Leave(*job.shards[0]).ok());
  EXPECT_TRUE(job.core.MayExit(job.now));
}

TEST(CoordinatorFailureTest, AFinishedCoordinatorWaitsForMembersUntilTheirLeaseIsOver) {
  auto options = CoordinatorFixture::DefaultOptions(1, 1);
  options.job.mutable_checkpoint()->set_at_end(false);
  CoordinatorFixture job(options);
  job.Train();
  ASSERT_TRUE(job.Finish(*job.workers[0], 0).ok());
  ASSERT_EQ(job.core.phase(), FINISHED);
  job.workers[0]->alive = false;
  job.Pass(absl::Seconds(30));
  EXPECT_EQ(job.core.phase(), FINISHED) << "what is over cannot fail";
  EXPECT_FALSE(job.core.MayExit(job.now)) << "the shard is still there";
  job.shards[0]->alive = false;
  job.Pass(absl::Seconds(11));
  EXPECT_TRUE(job.core.MayExit(job.now));
}

TEST(CoordinatorFailureTest, ACoordinatorThatWasStoppedBlamesNobody) {
  CoordinatorFixture job(1, 1);
  job.Train();
  job.Pass(absl::Seconds(5));
  job.now += absl::Minutes(1);  // SIGSTOP; heartbeats wait in the socket
  {
    Replies replies;
    job.core.Tick(job.now, replies);
  }
  EXPECT_EQ(job.core.phase(), TRAINING);
  job.Pass(absl::Seconds(30));
  EXPECT_EQ(job.core.phase(), TRAINING);
  job.workers[0]->alive = false;
  job.Pass(absl::Seconds(11));
  EXPECT_EQ(job.core.phase(), FAILED);
}

// A worker is lost, and before anybody can be told the coordinator is cut off from all.
void FailCutOff(CoordinatorFixture& job) {
  job.Train();
  job.workers[0]->alive = false;
  job.Pass(absl::Seconds(5));
  for (auto& process : job.processes) process->alive = false;
  job.Pass(absl::Seconds(5));
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_NE(job.core.cause()->text().find("worker 0 at"), std::string::npos);
}

CoordinatorCore::Options Autonomous() {
  auto options = CoordinatorFixture::DefaultOptions(1, 2);
  options.autonomy = absl::Seconds(30);
  return options;
}

TEST(CoordinatorFailureTest, OneThatIsCutOffWaitsToTellTheCause) {
  CoordinatorFixture job(Autonomous());
  FailCutOff(job);
  job.Pass(absl::Seconds(20));
  EXPECT_FALSE(job.core.MayExit(job.now)) << "they go on without it, and know of no failure";
  job.shards[0]->alive = true;
  job.Watch(*job.shards[0]);
  ASSERT_TRUE(job.shards[0]->watched.has_value() && job.shards[0]->watched->ok());
  EXPECT_EQ((*job.shards[0]->watched)->phase(), FAILED);
  job.Pass(absl::Seconds(9));
  EXPECT_FALSE(job.core.MayExit(job.now)) << "a member asks for news every now and then only";
  job.Pass(absl::Seconds(2));
  EXPECT_TRUE(job.core.MayExit(job.now)) << "the others could have come too";
}

TEST(CoordinatorFailureTest, WhatCameFromAMemberThatIsCutOffSinceIsNoSignThatItWasTold) {
  CoordinatorFixture job(Autonomous());
  FailCutOff(job);
  // It was on its way; the answer is lost.
  ASSERT_TRUE(job.Heartbeat(*job.shards[0]).ok());
  job.Pass(absl::Seconds(20));
  EXPECT_FALSE(job.core.MayExit(job.now));
  job.shards[0]->alive = true;
  ASSERT_TRUE(job.Leave(*job.shards[0]).ok());
  job.Pass(absl::Seconds(11));
  EXPECT_TRUE(job.core.MayExit(job.now));
}

TEST(CoordinatorFailureTest, OneThatIsCutOffWaitsNoLongerThanMembersGoOnAlone) {
  CoordinatorFixture job(Autonomous());
  FailCutOff(job);
  job.Pass(absl::Seconds(34));
  EXPECT_FALSE(job.core.MayExit(job.now));
  job.Pass(absl::Seconds(2));
  EXPECT_TRUE(job.core.MayExit(job.now));
}

}  // namespace
}  // namespace parley
