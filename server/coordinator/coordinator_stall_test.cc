// Who lives and gets nowhere is found after stall_timeout, and nobody else is.
#include <gtest/gtest.h>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace parley {
namespace {

TEST(CoordinatorStallTest, AWorkerThatLivesButStandsStillIsFoundAfterStallTimeout) {
  CoordinatorFixture job(1, 2);
  job.Train();
  const absl::Time start = job.now;
  uint64_t progress = 0;
  while (job.core.phase() == TRAINING && job.now < start + absl::Minutes(5)) {
    job.Pass(absl::Seconds(2), /*getting_on=*/false);
    ASSERT_TRUE(job.Heartbeat(*job.workers[0], ++progress).ok());
  }
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_EQ(job.core.cause()->member(), job.workers[1]->header.member());
  EXPECT_NE(job.core.cause()->text().find("is alive but has made no progress since"),
            std::string::npos);
  EXPECT_GE(job.now - start, absl::Seconds(60));
  EXPECT_LE(job.now - start, absl::Seconds(63));
}

// As two do that do not reach each other. moves: of the second one, at each heartbeat.
std::unique_ptr<CoordinatorFixture> TwoThatWait(bool moves) {
  auto owned = std::make_unique<CoordinatorFixture>(1, 2);
  CoordinatorFixture& job = *owned;
  job.Train();
  HeartbeatRequest waits;
  waits.set_moves(1);
  HeartbeatRequest other = waits;
  waits.set_waits_for("pushing to shard 0 at 127.0.0.1:4001");
  const absl::Time start = job.now;
  while (job.core.phase() == TRAINING && job.now < start + absl::Minutes(5)) {
    job.Pass(absl::Seconds(2), /*getting_on=*/false);
    waits.set_progress(waits.progress() + 1);
    other.set_progress(other.progress() + 1);
    if (moves) other.set_moves(other.moves() + 1);
    EXPECT_TRUE(job.Heartbeat(*job.workers[0], waits).ok());
    EXPECT_TRUE(job.Heartbeat(*job.workers[1], other).ok());
  }
  return owned;
}

TEST(CoordinatorStallTest, WorkersThatAllWaitForEachOtherAreFoundAfterStallTimeout) {
  const auto job = TwoThatWait(/*moves=*/false);
  ASSERT_EQ(job->core.phase(), FAILED);
  for (const char* word :
       {"nobody has got on since", "(60 s)",
        "worker 0 at 127.0.0.1:4101 (pid 101): pushing to shard 0 at 127.0.0.1:4001; 1 more at "
        "work"}) {
    EXPECT_NE(job->core.cause()->text().find(word), std::string::npos) << job->core.cause()->text();
  }
}

TEST(CoordinatorStallTest, WhileOneOfThemGetsOnTheOthersMayWait) {
  EXPECT_EQ(TwoThatWait(/*moves=*/true)->core.phase(), TRAINING);
}

TEST(CoordinatorStallTest, TheShardThatGetsNoAnswerIsNamedToo) {
  CoordinatorFixture job(2, 1);
  job.Train();
  HeartbeatRequest waits;
  waits.set_moves(1);
  HeartbeatRequest asks = waits;
  asks.set_waits_for("awaits shard 1 at 127.0.0.1:4002 to answer to the verdict of step 1");
  while (job.core.phase() == TRAINING) {
    job.Pass(absl::Seconds(2), /*getting_on=*/false);
    waits.set_progress(waits.progress() + 1);
    EXPECT_TRUE(job.Heartbeat(*job.workers[0], waits).ok());
    EXPECT_TRUE(job.Heartbeat(*job.shards[0], asks).ok());
  }
  EXPECT_NE(
      job.core.cause()->text().find(
          "shard 0 at 127.0.0.1:4100 (pid 100): awaits shard 1 at 127.0.0.1:4002 to answer to the "
          "verdict of step 1; 1 more at work"),
      std::string::npos)
      << job.core.cause()->text();
}

TEST(CoordinatorStallTest, ASlowStepIsNotKilledWhileItsWorkersGetOn) {
  CoordinatorFixture job(1, 2);
  job.Train();
  job.Pass(absl::Minutes(30));
  EXPECT_EQ(job.core.phase(), TRAINING);
}

TEST(CoordinatorStallTest, WhoDoesNotGiveTheInitialValuesIsNamedWithTheShardsThatWait) {
  CoordinatorFixture job(2, 2);
  job.Gather();
  const absl::Time start = job.now;
  uint64_t progress = 0;
  for (int i = 0; i < 60; ++i) {  // values come, but one shard's
    job.Pass(absl::Seconds(2), /*getting_on=*/false);
    ASSERT_TRUE(job.Heartbeat(*job.shards[1], ++progress).ok());
  }
  ASSERT_EQ(job.core.phase(), PREPARING);
  EXPECT_GT(job.now - start, absl::Seconds(110));
  job.Pass(absl::Seconds(61), /*getting_on=*/false);
  ASSERT_EQ(job.core.phase(), FAILED);
  for (const char* word :
       {"has waited in vain since", "shard 0 at 127.0.0.1:4100 (pid 100) is not ready",
        "worker 0 at 127.0.0.1:4102 (pid 102) gives the initial values"}) {
    EXPECT_NE(job.core.cause()->text().find(word), std::string::npos) << job.core.cause()->text();
  }
  EXPECT_EQ(job.core.cause()->text().find("worker 1"), std::string::npos);
}

// As a client in another language may.
TEST(CoordinatorStallTest, WhoNeverTellsOfProgressGetsOnWithTheStepsThatItHasAPartIn) {
  CoordinatorFixture job(1, 2);
  job.Train();
  for (int step = 1; step <= 4; ++step) {
    job.Pass(absl::Seconds(50), /*getting_on=*/false);
    ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  }
  job.Pass(absl::Seconds(58), /*getting_on=*/false);
  EXPECT_EQ(job.core.phase(), TRAINING);
  job.Pass(absl::Seconds(5), /*getting_on=*/false);
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_NE(job.core.cause()->text().find("has made no progress since"), std::string::npos);
}

TEST(CoordinatorStallTest, AWorkerThatHasFinishedNeedNotGetOn) {
  CoordinatorFixture job(1, 2);
  job.Train();
  ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  ASSERT_TRUE(job.Finish(*job.workers[0], 1).ok());
  uint64_t progress = 0;
  for (int i = 0; i < 100; ++i) {
    job.Pass(absl::Seconds(2), /*getting_on=*/false);
    ASSERT_TRUE(job.Heartbeat(*job.workers[1], ++progress).ok());
  }
  EXPECT_EQ(job.core.phase(), TRAINING);
}

}  // namespace
}  // namespace parley
