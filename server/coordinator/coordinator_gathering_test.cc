// While members come: whom a job survives then, and how long it waits for whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace parley {
namespace {

using Process = CoordinatorFixture::Process;

constexpr absl::Duration kLiveness = absl::Seconds(10);

TEST(CoordinatorGatheringTest, WhatAJobSurvivesLaterItSurvivesWhileItGathers) {
  auto options = CoordinatorFixture::DefaultOptions(2, 3);
  options.job.set_max_restarts(1);
  CoordinatorFixture job(std::move(options));
  job.StartAndJoin(WORKER);
  for (int i = 0; i < 2; ++i) {  // more than max_restarts
    Process& lost = job.StartAndJoin(WORKER);
    ASSERT_TRUE(job.Register(lost).ok());
    lost.alive = false;
    job.Pass(2 * kLiveness);
    ASSERT_EQ(job.core.phase(), GATHERING);
    EXPECT_THAT(job.Status().what_is_missing(), testing::HasSubstr("worker 1 has not joined"));
  }
  for (int i = 0; i < 2; ++i) job.shards.push_back(&job.StartAndJoin(SHARD));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(job.Register(job.StartAndJoin(WORKER)).ok());
  EXPECT_EQ(job.core.phase(), GATHERING);
  ASSERT_TRUE(job.Register(*job.processes[0]).ok());
  EXPECT_EQ(job.core.phase(), PREPARING);
}

TEST(CoordinatorGatheringTest, AndWorkersThatItNeedNotHave) {
  auto options = CoordinatorFixture::DefaultOptions(1, 3);
  options.job.mutable_cluster()->set_min_workers(1);
  CoordinatorFixture job(std::move(options));
  Process& worker = job.StartAndJoin(WORKER);
  Process& shard = job.StartAndJoin(SHARD);
  worker.alive = false;
  job.Pass(2 * kLiveness);
  EXPECT_EQ(job.core.phase(), GATHERING);
  shard.alive = false;
  job.Pass(2 * kLiveness);
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_EQ(job.core.cause()->member(), shard.header.member());
}

TEST(CoordinatorGatheringTest, AMemberThatNeverComesEndsTheJobByName) {
  CoordinatorFixture job(1, 2);
  job.StartAndJoin(SHARD);
  auto& worker = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Register(worker).ok());
  job.Pass(absl::Seconds(59));
  EXPECT_EQ(job.core.phase(), GATHERING);
  job.Pass(absl::Seconds(2));
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_NE(job.core.cause()->text().find("worker 1 has not joined"), std::string::npos)
      << job.core.cause()->text();
}

TEST(CoordinatorGatheringTest, ThoseThatMayComeLateHaveTheirOwnTime) {
  auto options = CoordinatorFixture::DefaultOptions(1, 2);
  options.gather_timeout = absl::Hours(720);
  CoordinatorFixture job(std::move(options));
  job.StartAndJoin(SHARD);
  ASSERT_TRUE(job.Register(job.StartAndJoin(WORKER)).ok());
  job.Pass(absl::Hours(2), /*getting_on=*/false);
  EXPECT_EQ(job.core.phase(), GATHERING);
  job.StartAndJoin(WORKER);
  job.Pass(absl::Seconds(59), /*getting_on=*/false);
  EXPECT_EQ(job.core.phase(), GATHERING);
  job.Pass(absl::Seconds(2), /*getting_on=*/false);
  ASSERT_EQ(job.core.phase(), FAILED) << "who is there has no longer than in any phase";
  EXPECT_EQ(job.core.cause()->member(), job.processes.back()->header.member());
}

TEST(CoordinatorGatheringTest, WhoIsThereAndGetsNowhereIsFoundBeforeTheLastOneComes) {
  auto options = CoordinatorFixture::DefaultOptions(1, 2);
  options.gather_timeout = absl::Hours(720);
  CoordinatorFixture job(std::move(options));
  job.StartAndJoin(SHARD);
  auto& worker = job.StartAndJoin(WORKER);
  job.Pass(absl::Seconds(59), /*getting_on=*/false);
  EXPECT_EQ(job.core.phase(), GATHERING);
  job.Pass(absl::Seconds(2), /*getting_on=*/false);
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_EQ(job.core.cause()->member(), worker.header.member());
}

// With workers that need not stay, so that nobody's loss is the end of the job.
CoordinatorCore::Options WithDefaultAutonomy(uint32_t workers = 4) {
  auto options = CoordinatorFixture::DefaultOptions(1, workers);
  options.job.mutable_cluster()->set_min_workers(1);
  options.autonomy = absl::Seconds(60);
  return options;
}

TEST(CoordinatorGatheringTest, OneThatComesAndGoesAloneDoesNotHideThatTheOthersNeverCome) {
  CoordinatorFixture job(WithDefaultAutonomy());
  const absl::Time start = job.now;
  while (job.core.phase() == GATHERING && job.now < start + absl::Hours(2)) {
    Process& one = job.StartAndJoin(WORKER);
    job.Pass(absl::Seconds(5));
    one.alive = false;
    job.Pass(absl::Seconds(75));
  }
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_LE(job.now - start, 3 * absl::Seconds(60) + absl::Seconds(160));
  EXPECT_THAT(job.core.cause()->text(), testing::HasSubstr("shard 0 has not joined"));
}

TEST(CoordinatorGatheringTest, NorDoesOneWhoseHeartbeatsAreLateNowAndThen) {
  CoordinatorFixture job(WithDefaultAutonomy());
  Process& one = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Register(one).ok());
  const absl::Time start = job.now;
  while (job.core.phase() == GATHERING && job.now < start + absl::Hours(2)) {
    one.alive = false;
    job.Pass(absl::Seconds(8));
    one.alive = true;
    job.Pass(absl::Seconds(8));
  }
  ASSERT_EQ(job.core.phase(), FAILED);
  EXPECT_GE(job.now - start, absl::Seconds(60));
  EXPECT_LE(job.now - start, 3 * absl::Seconds(60) + absl::Seconds(30));
}

TEST(CoordinatorGatheringTest, ThoseThatComeAgainAfterFewerWereWantedAreWaitedForLikeTheFirst) {
  auto options = WithDefaultAutonomy(/*workers=*/5);
  options.autonomy = absl::ZeroDuration();
  CoordinatorFixture job(std::move(options));
  std::vector<Process*> workers;
  for (int i = 0; i < 4; ++i) {
    workers.push_back(&job.StartAndJoin(WORKER));
    ASSERT_TRUE(job.Register(*workers[i]).ok());
  }
  ASSERT_TRUE(job.SetWorkers(1).ok());
  for (int i : {1, 2, 3}) {
    ASSERT_TRUE(job.Depart(*workers[i]).ok());
    workers[i]->alive = false;
  }
  ASSERT_TRUE(job.SetWorkers(5).ok());
  // Each within the time that the others give it, though never more of them than at first.
  for (int i = 0; i < 3; ++i) {
    job.Pass(absl::Seconds(55));
    ASSERT_TRUE(job.Register(job.StartAndJoin(WORKER)).ok());
  }
  job.Pass(absl::Seconds(30));
  ASSERT_EQ(job.core.phase(), GATHERING);
  const std::vector<Wait> waits = job.core.Waits(job.now);
  ASSERT_FALSE(waits.empty());
  EXPECT_EQ(waits[0].seconds(), 30) << "the last one that came is what the job has waited for";
}

TEST(CoordinatorGatheringTest, ACoordinatorThatWasCutOffWhileMembersGatherMissesNobody) {
  auto options = CoordinatorFixture::DefaultOptions(1, 2);
  options.autonomy = absl::Seconds(60);
  CoordinatorFixture job(std::move(options));
  job.StartAndJoin(SHARD);
  job.StartAndJoin(WORKER);
  for (auto& process : job.processes) process->alive = false;
  job.Pass(absl::Seconds(40));
  EXPECT_EQ(job.core.phase(), GATHERING) << "they wait for it for as long as they do later";
  for (auto& process : job.processes) process->alive = true;
  job.Pass(absl::Seconds(15));
  ASSERT_EQ(job.core.phase(), GATHERING);
  for (auto& process : job.processes) EXPECT_TRUE(job.Heartbeat(*process).ok());
}

}  // namespace
}  // namespace parley
