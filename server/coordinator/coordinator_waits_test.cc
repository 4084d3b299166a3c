#include <gtest/gtest.h>

#include "server/coordinator/coordinator_fixture.h"

namespace parley {
namespace {

// "worker-1" for each place that any wait is on.
std::vector<std::string> WaitedForBy(const std::vector<Wait>& waits) {
  std::vector<std::string> places;
  for (const Wait& wait : waits) {
    for (const WaitedFor& on : wait.on()) {
      places.push_back((on.role() == SHARD ? "shard-" : "worker-") + std::to_string(on.ordinal()));
    }
  }
  return places;
}

using Places = std::vector<std::string>;

TEST(CoordinatorWaits, NamesThePlacesThatAreFreeAndTheModelsThatAreMissingWhileItGathers) {
  CoordinatorFixture job(1, 2);
  job.StartAndJoin(WORKER);
  job.now += absl::Seconds(3);
  const std::vector<Wait> waits = job.core.Waits(job.now);
  EXPECT_EQ(WaitedForBy(waits), (Places{"shard-0", "worker-0", "worker-1"}));
  EXPECT_NE(waits[0].what().find("shard 0 has not joined"), std::string::npos);
  EXPECT_NE(waits[1].what().find("has not registered its model"), std::string::npos);
  EXPECT_EQ(waits[0].seconds(), 3);
  EXPECT_EQ(waits[0].seconds_left(), 57);
}

TEST(CoordinatorWaits, ThoseThatAreThereHaveLessTimeThanThoseThatAreToCome) {
  auto options = CoordinatorFixture::DefaultOptions(1, 2);
  options.gather_timeout = absl::Hours(720);
  CoordinatorFixture job(std::move(options));
  job.StartAndJoin(WORKER);
  job.now += absl::Seconds(20);
  job.StartAndJoin(SHARD);
  job.now += absl::Seconds(3);
  const std::vector<Wait> waits = job.core.Waits(job.now);
  ASSERT_EQ(WaitedForBy(waits), (Places{"worker-0", "worker-1", "worker-0"}));
  EXPECT_EQ(waits[0].seconds(), 23);
  EXPECT_EQ(waits[0].seconds_left(), 37);
  EXPECT_EQ(waits[1].seconds(), 3);
  EXPECT_EQ(waits[1].seconds_left(), 720 * 3600 - 3);
}

TEST(CoordinatorWaits, NamesTheShardsThatAreNotReadyAndWhoGivesThemValues) {
  CoordinatorFixture job(2, 1);
  job.Gather();
  ASSERT_TRUE(job.Ready(*job.shards[0]).ok());
  EXPECT_EQ(WaitedForBy(job.core.Waits(job.now)), (Places{"shard-1", "worker-0"}));
}

TEST(CoordinatorWaits, AreNoneWhileAJobTrainsAndAllAreHeardOf) {
  CoordinatorFixture job(1, 2);
  job.Train();
  job.Pass(absl::Seconds(30));
  EXPECT_TRUE(job.core.Waits(job.now).empty());
}

TEST(CoordinatorWaits, NamesAMemberWhoseHeartbeatsAreLateBeforeItsLeaseEnds) {
  CoordinatorFixture job(1, 2);
  job.Train();
  job.workers[1]->alive = false;
  job.Pass(absl::Seconds(7));
  const std::vector<Wait> waits = job.core.Waits(job.now);
  ASSERT_EQ(WaitedForBy(waits), Places{"worker-1"});
  EXPECT_NE(waits[0].what().find("a heartbeat of worker 1 at"), std::string::npos);
  EXPECT_GE(waits[0].seconds(), 5);
  EXPECT_EQ(waits[0].seconds() + waits[0].seconds_left(), 10);
}

TEST(CoordinatorWaits, NamesThePlaceThatWaitsForAReplacement) {
  CoordinatorCore::Options options = CoordinatorFixture::DefaultOptions(1, 3);
  options.job.mutable_cluster()->set_min_workers(1);
  options.job.mutable_consistency()->mutable_sync()->set_lost_worker(WAIT);
  CoordinatorFixture job(options);
  job.Train();
  job.workers[2]->alive = false;
  job.Pass(absl::Seconds(20));
  const std::vector<Wait> waits = job.core.Waits(job.now);
  EXPECT_EQ(WaitedForBy(waits), Places{"worker-2"});
  EXPECT_NE(waits[0].what().find("its place waits for another worker"), std::string::npos);
}

TEST(CoordinatorWaits, NamesTheWorkersThatHaveNotFinishedWhenOneHas) {
  CoordinatorFixture job(1, 2);
  job.Train();
  while (job.core.progress().step() < 10) {
    ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  }
  ASSERT_TRUE(job.Finish(*job.workers[0], 10).ok());
  EXPECT_EQ(WaitedForBy(job.core.Waits(job.now)), Places{"worker-1"});
}

TEST(CoordinatorWaits, AreNoneOnceTheJobHasEnded) {
  CoordinatorFixture job(1, 2);
  job.Train();
  ASSERT_TRUE(job.Fail(*job.workers[0], "no more").ok());
  job.now += absl::Seconds(30);
  EXPECT_TRUE(job.core.Waits(job.now).empty());
}

}  // namespace
}  // namespace parley
