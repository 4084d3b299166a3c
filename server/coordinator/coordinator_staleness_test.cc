// How stale the workers of a job in bounded or async are, as the coordinator tells it.
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"
#include "server/coordinator/elastic_fixture.h"
#include "server/coordinator/recovery_fixture.h"

namespace parley {
namespace {

using Process = CoordinatorFixture::Process;

CoordinatorCore::Options Async(uint32_t workers) {
  auto options = CoordinatorFixture::DefaultOptions(1, workers);
  options.job.mutable_cluster()->set_min_workers(1);
  options.job.mutable_consistency()->mutable_async();
  return options;
}

// The worker has completed a contribution, with the next samples of the data epoch.
void Contribute(CoordinatorFixture& job, const Process& worker) {
  const DataPosition& position = job.core.progress().position();
  const uint64_t begin = position.used().empty() ? 0 : position.used(0).end();
  Verdict verdict;
  verdict.set_step(job.core.progress().step() + 1);
  verdict.set_outcome(Verdict::APPLY);
  verdict.set_data_epoch(position.epoch());
  Share* share = verdict.add_shares();
  share->set_contributor(worker.ordinal);
  share->set_weight(1);
  share->set_samples(10);
  SampleRange* range = share->add_ranges();
  range->set_begin(begin);
  range->set_end(begin + 10);
  ASSERT_TRUE(job.Report(*job.shards[0], {verdict}).ok());
}

// By ordinal, of the workers that have one.
std::map<uint32_t, uint64_t> Staleness(const GetStatusReply& status) {
  std::map<uint32_t, uint64_t> staleness;
  for (const MemberStatus& member : status.members()) {
    if (!member.has_staleness()) continue;
    EXPECT_EQ(member.member().role(), WORKER);
    staleness[member.member().ordinal()] = member.staleness();
  }
  return staleness;
}

using Stale = std::map<uint32_t, uint64_t>;

TEST(CoordinatorStalenessTest, AWorkerLacksWhatOthersHaveCompletedSinceItsOwnLastOne) {
  CoordinatorFixture job(Async(3));
  job.Gather();
  EXPECT_EQ(Staleness(job.Status()), Stale()) << "nobody trains yet";
  ASSERT_TRUE(job.Ready(*job.shards[0]).ok());
  EXPECT_EQ(Staleness(job.Status()), (Stale{{0, 0}, {1, 0}, {2, 0}})) << "all pull the start";
  Contribute(job, *job.workers[0]);
  Contribute(job, *job.workers[1]);
  Contribute(job, *job.workers[0]);
  Contribute(job, *job.workers[0]);
  EXPECT_EQ(Staleness(job.Status()), (Stale{{0, 0}, {1, 2}, {2, 4}}));
  // The slow one has pushed at last.
  Contribute(job, *job.workers[2]);
  EXPECT_EQ(Staleness(job.Status()), (Stale{{0, 1}, {1, 3}, {2, 0}}));
}

TEST(CoordinatorStalenessTest, AWorkerThatPullsANewerVersionSaysSoByItsHeartbeat) {
  CoordinatorFixture job(Async(2));
  job.Train();
  for (int i = 0; i < 4; ++i) Contribute(job, *job.workers[0]);
  // At the end of a data epoch, or after a contribution that was refused.
  ASSERT_TRUE(job.Heartbeat(*job.workers[1], /*progress=*/1, /*step=*/3).ok());
  EXPECT_EQ(Staleness(job.Status()), (Stale{{0, 0}, {1, 1}}));
  ASSERT_TRUE(job.Heartbeat(*job.workers[1], /*progress=*/2, /*step=*/2).ok());
  EXPECT_EQ(Staleness(job.Status()), (Stale{{0, 0}, {1, 1}})) << "it does not become older";
}

TEST(CoordinatorStalenessTest, OneThatComesLateBeginsWithTheNewestParameters) {
  CoordinatorFixture job(Async(2));
  job.Train();
  for (int i = 0; i < 3; ++i) Contribute(job, *job.workers[0]);
  Lose(job, *job.workers[1]);
  EXPECT_EQ(Staleness(job.Status()), (Stale{{0, 0}}));
  Process& late = job.StartAndJoin(WORKER);
  EXPECT_EQ(Staleness(job.Status()), (Stale{{0, 0}})) << "it takes no part yet";
  ASSERT_TRUE(job.Register(late).ok());
  job.LearnView();
  EXPECT_EQ(Staleness(job.Status()), (Stale{{0, 0}, {1, 0}}));
  Contribute(job, *job.workers[0]);
  EXPECT_EQ(Staleness(job.Status()), (Stale{{0, 0}, {1, 1}}));
}

TEST(CoordinatorStalenessTest, ACoordinatorThatHasTakenOverSaysNothingUntilItHearsOfAWorker) {
  CoordinatorFixture job(Async(2));
  job.Train();
  for (int i = 0; i < 3; ++i) Contribute(job, *job.workers[0]);
  CoordinatorCore next(Async(2));
  ASSERT_TRUE(next.Restore(job.core.DurableState()).ok());
  next.Open(2, "127.0.0.1:4001", job.now);
  EXPECT_EQ(Staleness(*next.GetStatus({}, job.now)), Stale());
  HeartbeatRequest heartbeat;
  *heartbeat.mutable_header() = job.workers[1]->header;
  heartbeat.set_step(1);
  Replies replies;
  ASSERT_TRUE(next.Heartbeat(heartbeat, job.now, replies).ok());
  EXPECT_EQ(Staleness(*next.GetStatus({}, job.now)), (Stale{{1, 2}}));
}

class StalenessAfterGoingBack : public CoordinatorRecoveryTest {
 protected:
  StalenessAfterGoingBack()
      : CoordinatorRecoveryTest([](CoordinatorCore::Options& options) {
          options.job.mutable_consistency()->mutable_async();
        }) {}
};

TEST_F(StalenessAfterGoingBack, AllBeginWithTheParametersOfTheCheckpoint) {
  TrainWithACheckpoint();
  LoseShard(1);
  Replace(1);
  BecomeReady(2);
  EXPECT_EQ(Staleness(job_.Status()), (Stale{{0, 0}, {1, 0}}));
  Contribute(job_, *job_.workers[0]);
  EXPECT_EQ(Staleness(job_.Status()), (Stale{{0, 0}, {1, 1}}));
}

TEST(CoordinatorStalenessTest, InSyncThereIsNone) {
  CoordinatorFixture job(1, 2);
  job.Train();
  ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  EXPECT_EQ(Staleness(job.Status()), Stale());
}

}  // namespace
}  // namespace parley
