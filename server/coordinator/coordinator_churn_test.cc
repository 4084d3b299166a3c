// One that is admitted and lost again and again hides nobody who stands still, and is not waited
// for without end (docs/membership.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"
#include "server/coordinator/elastic_fixture.h"

namespace parley {
namespace {

using testing::HasSubstr;
using Process = CoordinatorFixture::Process;

constexpr int kTimes = 20;
// The view's changes put off who is blamed by twice stall_timeout; and a cycle of the churn.
constexpr absl::Duration kLatest = absl::Seconds(3 * 60 + 35);

// Time goes on, and these say the same each time; all others get on, as CoordinatorFixture has it.
void Pass(CoordinatorFixture& job, absl::Duration duration,
          const std::function<void()>& heartbeats) {
  for (const absl::Time end = job.now + duration; job.now < end;) {
    heartbeats();
    job.Pass(absl::Seconds(1));
  }
}

// The last worker is lost and replaced again and again, until the job has ended; `between` each
// time.
void ComeAndGo(CoordinatorFixture& job, const std::function<void()>& heartbeats,
               const std::function<void(int)>& between = nullptr) {
  const Phase phase = job.core.phase();
  Process* victim = job.workers.back();
  for (int i = 0; i < kTimes && job.core.phase() == phase; ++i) {
    victim->alive = false;
    Pass(job, absl::Seconds(31), heartbeats);
    if (job.core.phase() != phase) break;
    victim = &job.StartAndJoin(WORKER);
    ASSERT_TRUE(job.Register(*victim).ok());
    if (job.core.view_epoch() != 0) job.LearnView();
    if (between != nullptr) between(i);
    Pass(job, absl::Seconds(9), heartbeats);
  }
}

// It is heard of, but says itself what it says.
void SpeaksForItself(Process& process) { process.alive = false; }

TEST(CoordinatorChurnTest, AWorkerThatStandsStillIsFoundThoughAnotherOneComesAndGoes) {
  for (const Consistency::KindCase mode :
       {Consistency::kSync, Consistency::kBounded, Consistency::kAsync}) {
    auto options = Elastic(3, 1, GO_ON);
    if (mode == Consistency::kBounded) {
      options.job.mutable_consistency()->mutable_bounded()->set_bound(2);
    }
    if (mode == Consistency::kAsync) options.job.mutable_consistency()->mutable_async();
    CoordinatorFixture job(options);
    job.Train();
    SpeaksForItself(*job.workers[0]);
    const absl::Time start = job.now;
    ComeAndGo(
        job, [&] { (void)job.Heartbeat(*job.workers[0], 1); },
        [&](int i) {
          if (mode == Consistency::kSync) return;
          // Of the one that gets on.
          Verdict verdict;
          verdict.set_step(job.core.progress().step() + 1);
          verdict.set_outcome(Verdict::APPLY);
          Share& share = *verdict.add_shares();
          share.set_contributor(1);
          share.set_samples(1);
          share.add_ranges()->set_begin(static_cast<uint64_t>(i));
          share.mutable_ranges(0)->set_end(static_cast<uint64_t>(i) + 1);
          ASSERT_TRUE(job.Report(*job.shards[0], {verdict}).ok());
        });
    ASSERT_EQ(job.core.phase(), FAILED) << "mode " << mode;
    EXPECT_EQ(job.core.cause()->member(), Id(job.workers[0])) << job.core.cause()->text();
    EXPECT_THAT(job.core.cause()->text(),
                HasSubstr("is alive but has made no progress since " + FormatUtc(start)));
    EXPECT_LE(job.now - start, kLatest);
  }
}

TEST(CoordinatorChurnTest, AnOpenStepWaitsForOnePlaceNoLongerThoughMoreThanOneIsLostThere) {
  CoordinatorFixture job(Elastic(3, 1, WAIT));
  job.Train();
  const absl::Time start = job.now;
  ComeAndGo(job, [] {});
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_THAT(job.core.cause()->text(), HasSubstr("worker 2 at "));
  EXPECT_THAT(job.core.cause()->text(), HasSubstr("has not been heard of since"));
  EXPECT_GE(job.now - start, absl::Seconds(70));
  EXPECT_LE(job.now - start, absl::Seconds(10 + 60 + 31));
}

TEST(CoordinatorChurnTest, EachStepMayWaitForOne) {
  CoordinatorFixture job(Elastic(3, 1, WAIT));
  job.Train();
  ComeAndGo(
      job, [] {},
      [&](int i) {
        if (i >= 6) return;
        ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
      });
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_EQ(job.core.progress().step(), 6u);
}

TEST(CoordinatorChurnTest, WhoWasOfUseInALongStepIsWaitedForAnew) {
  CoordinatorFixture job(Elastic(3, 1, WAIT));
  job.Train();
  Lose(job, *job.workers[2]);
  job.Pass(absl::Seconds(40));
  Process& second = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Register(second).ok());
  job.Pass(absl::Minutes(5));
  Lose(job, second);
  job.Pass(absl::Seconds(40));
  EXPECT_EQ(job.core.phase(), TRAINING);
  job.Pass(absl::Seconds(20));
  EXPECT_EQ(job.core.phase(), FAILED);
}

// All are heard of, and wait for others.
class Waiting {
 public:
  explicit Waiting(CoordinatorFixture& job) : job_(job) {
    for (auto& process : job.processes) SpeaksForItself(*process);
  }
  void Heartbeats() {
    HeartbeatRequest waits;
    waits.set_progress(++progress_);
    waits.set_moves(1);
    for (auto& process : job_.processes) {
      if (process.get() != moving) (void)job_.Heartbeat(*process, waits);
    }
    waits.set_moves(progress_);
    if (moving != nullptr) (void)job_.Heartbeat(*moving, waits);
  }
  Process* moving = nullptr;

 private:
  CoordinatorFixture& job_;
  uint64_t progress_ = 1'000'000;
};

TEST(CoordinatorChurnTest, ThoseThatWaitForEachOtherAreFoundThoughAnotherOneComesAndGoes) {
  CoordinatorFixture job(Elastic(3, 1, GO_ON));
  job.Train();
  SpeaksForItself(*job.workers[0]);
  SpeaksForItself(*job.workers[1]);
  for (Process* shard : job.shards) SpeaksForItself(*shard);
  HeartbeatRequest waits;
  waits.set_moves(1);
  const absl::Time start = job.now;
  ComeAndGo(
      job,
      [&] {
        waits.set_progress(waits.progress() + 1);
        for (int i : {0, 1}) {
          (void)job.Heartbeat(*job.workers[i], waits);
          (void)job.Heartbeat(*job.shards[i], waits);
        }
      },
      [&](int attempt) {
        // Each may be a reason to send all once more.
        Verdict retry;
        retry.set_step(1);
        retry.set_attempt(static_cast<uint32_t>(attempt));
        retry.set_outcome(Verdict::RETRY);
        ASSERT_TRUE(job.Report(*job.shards[0], {retry}).ok());
        ASSERT_TRUE(job.SetWorkers(attempt % 2 == 0 ? 4 : 3).ok());
      });
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_THAT(job.core.cause()->text(), HasSubstr("nobody has got on since " + FormatUtc(start)));
  EXPECT_LE(job.now - start, kLatest);
}

TEST(CoordinatorChurnTest, OneThatHasComeAndComputesForLongIsWaitedFor) {
  for (const LostWorker mode : {GO_ON, WAIT}) {
    CoordinatorFixture job(Elastic(3, 1, mode));
    job.Train();
    Lose(job, *job.workers[2]);
    job.Pass(absl::Seconds(40));
    Process& fresh = job.StartAndJoin(WORKER);
    ASSERT_TRUE(job.Register(fresh).ok());
    Waiting waiting(job);
    waiting.moving = &fresh;
    Pass(job, absl::Minutes(10), [&] { waiting.Heartbeats(); });
    EXPECT_EQ(job.core.phase(), TRAINING);
    waiting.moving = nullptr;
    Pass(job, absl::Seconds(65), [&] { waiting.Heartbeats(); });
    EXPECT_EQ(job.core.phase(), FAILED);
  }
}

TEST(CoordinatorChurnTest, WhatALostOneHasDoneCounts) {
  CoordinatorFixture job(Elastic(3, 1, WAIT));
  job.Train();
  Process& lost = *job.workers[2];
  Waiting waiting(job);
  waiting.moving = &lost;
  Pass(job, absl::Minutes(5), [&] { waiting.Heartbeats(); });
  ASSERT_EQ(job.core.phase(), TRAINING);
  waiting.moving = nullptr;
  lost.header.set_job("");  // it is not heard of any more
  Pass(job, absl::Seconds(40), [&] { waiting.Heartbeats(); });
  Process& successor = job.StartAndJoin(WORKER);
  SpeaksForItself(successor);
  ASSERT_TRUE(job.Register(successor).ok());
  Pass(job, absl::Seconds(50), [&] { waiting.Heartbeats(); });
  EXPECT_EQ(job.core.phase(), TRAINING) << job.core.cause()->text();
}

TEST(CoordinatorChurnTest, AMemberThatNeverComesIsReportedThoughAnotherOneComesAndGoes) {
  for (const bool registers : {true, false}) {
    CoordinatorFixture job(Elastic(3, 1, GO_ON));
    for (int i = 0; i < 2; ++i) job.shards.push_back(&job.StartAndJoin(SHARD));
    ASSERT_TRUE(job.Register(job.StartAndJoin(WORKER)).ok());
    const absl::Time start = job.now;
    for (int i = 0; i < kTimes && job.core.phase() == GATHERING; ++i) {
      Process& worker = job.StartAndJoin(WORKER);
      if (registers) {
        ASSERT_TRUE(job.Register(worker).ok());
      }
      job.Pass(absl::Seconds(5));
      Lose(job, worker);
      job.Pass(absl::Seconds(5));
    }
    ASSERT_EQ(job.core.phase(), FAILED);
    EXPECT_THAT(job.core.cause()->text(), HasSubstr("worker 2 has not joined"));
    EXPECT_LE(job.now - start, kLatest);
  }
}

TEST(CoordinatorChurnTest, WhoIsLostAfterItHasLoadedForLongMayBeReplaced) {
  CoordinatorFixture job(Elastic(2, 1, GO_ON));
  for (int i = 0; i < 2; ++i) job.shards.push_back(&job.StartAndJoin(SHARD));
  Process& first = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Register(job.StartAndJoin(WORKER)).ok());
  job.Pass(absl::Minutes(5));
  ASSERT_EQ(job.core.phase(), GATHERING);
  Lose(job, first);
  job.Pass(absl::Seconds(40));
  ASSERT_EQ(job.core.phase(), GATHERING) << job.core.cause()->text();
  Process& second = job.StartAndJoin(WORKER);
  job.Pass(absl::Minutes(5));
  ASSERT_TRUE(job.Register(second).ok());
  EXPECT_EQ(job.core.phase(), PREPARING);
}

TEST(CoordinatorChurnTest, AShardThatDoesNotGetReadyIsFoundThoughAWorkerComesAndGoes) {
  CoordinatorFixture job(Elastic(3, 1, GO_ON));
  job.Gather();
  for (Process* shard : job.shards) SpeaksForItself(*shard);
  const absl::Time start = job.now;
  ComeAndGo(job, [&] {
    for (Process* shard : job.shards) (void)job.Heartbeat(*shard, 1);
    (void)job.Ready(*job.shards[1]);
  });
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_THAT(job.core.cause()->text(), HasSubstr("shard 0 at 127.0.0.1:4100 (pid 100) is not "
                                                  "ready"));
  EXPECT_LE(job.now - start, kLatest);
}

}  // namespace
}  // namespace parley
