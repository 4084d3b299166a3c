#include <gtest/gtest.h>

#include <cstdint>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace parley {
namespace {

using absl::StatusCode;

TEST(CoordinatorTest, WatchParksUntilThereIsSomethingNew) {
  CoordinatorFixture job(1, 1);
  auto& shard = job.StartAndJoin(SHARD);
  auto& worker = job.StartAndJoin(WORKER);
  job.Watch(shard);
  ASSERT_TRUE(shard.watched.has_value());
  EXPECT_EQ((*shard.watched)->phase(), GATHERING);
  job.Watch(shard);
  job.Pass(absl::Seconds(5));
  EXPECT_FALSE(shard.watched.has_value());
  ASSERT_TRUE(job.Register(worker).ok());
  ASSERT_TRUE(shard.watched.has_value());
  EXPECT_EQ((*shard.watched)->phase(), PREPARING);
}

TEST(CoordinatorTest, AtItsDeadlineWatchSaysOnlyThatNothingIsNew) {
  CoordinatorFixture job(1, 1);
  auto& shard = job.StartAndJoin(SHARD);
  job.Watch(shard);
  const uint64_t revision = shard.seen_revision;
  const absl::Time parked = job.now;
  job.Watch(shard, absl::Seconds(7));
  job.Pass(absl::Seconds(8));
  ASSERT_TRUE(shard.watched.has_value());
  EXPECT_EQ((*shard.watched)->revision(), revision);
  EXPECT_EQ((*shard.watched)->phase(), PHASE_UNSPECIFIED);
  EXPECT_FALSE((*shard.watched)->has_view()) << "it may be long";
  EXPECT_GE(shard.watched_at, parked + absl::Seconds(7));
  EXPECT_LE(shard.watched_at, parked + absl::Milliseconds(7500));
}

TEST(CoordinatorTest, ASecondWatchOfAMemberAnswersTheFirst) {
  CoordinatorFixture job(1, 1);
  auto& shard = job.StartAndJoin(SHARD);
  job.Watch(shard);
  int answers = 0;
  WatchRequest request;
  *request.mutable_header() = shard.header;
  request.set_seen_revision(shard.seen_revision);
  const auto count = [&](absl::StatusOr<SharedJobState> reply) { answers += reply.ok() ? 1 : 100; };
  for (int i = 0; i < 3; ++i) {
    Replies replies;
    job.core.Watch(request, {job.now, job.now + absl::Minutes(1)}, replies, count);
  }
  EXPECT_EQ(answers, 2);
  {
    Replies replies;
    job.core.Close(replies);
  }
  EXPECT_EQ(answers, 3);
  {
    Replies replies;
    job.core.Watch(request, {job.now, job.now + absl::Minutes(1)}, replies, count);
  }
  EXPECT_EQ(answers, 4) << "nothing parks any more when the process goes";
}

TEST(CoordinatorTest, AHeartbeatTellsWhetherThereIsNews) {
  CoordinatorFixture job(1, 1);
  job.Train();
  auto& shard = *job.shards[0];
  const auto told = [&] {
    HeartbeatRequest request;
    *request.mutable_header() = shard.header;
    Replies replies;
    return job.core.Heartbeat(request, job.now, replies)->revision();
  };
  shard.seen_revision = 0;
  job.Watch(shard);
  EXPECT_EQ(told(), shard.seen_revision);
  ASSERT_TRUE(job.Fail(*job.workers[0], "x").ok());
  EXPECT_GT(told(), shard.seen_revision);
}

TEST(CoordinatorTest, StatusSaysWhoIsMissing) {
  CoordinatorFixture job(2, 1);
  EXPECT_EQ(job.Status().what_is_missing(),
            "shard 0 has not joined; shard 1 has not joined; worker 0 has not joined");
  EXPECT_EQ(job.Status().expected_members(), 3u);
  auto& shard = job.StartAndJoin(SHARD);
  auto& worker = job.StartAndJoin(WORKER);
  EXPECT_EQ(job.Status().what_is_missing(),
            "shard 1 has not joined; worker 0 at 127.0.0.1:4101 (pid 101) has not registered its "
            "model");
  job.StartAndJoin(SHARD);
  ASSERT_TRUE(job.Register(worker).ok());
  job.LearnView();
  ASSERT_TRUE(job.Ready(shard).ok());
  EXPECT_EQ(job.Status().what_is_missing(),
            "shard 1 at 127.0.0.1:4102 (pid 102) is not ready; worker 0 at 127.0.0.1:4101 (pid "
            "101) gives the initial values");
  EXPECT_EQ(job.Status().phase(), PREPARING);
  GetStatusRequest other;
  other.set_job("letters");
  EXPECT_EQ(job.core.GetStatus(other, job.now).status().code(), StatusCode::kNotFound);
}

TEST(CoordinatorTest, EvaluationsAreToldWhenTheyAreWhole) {
  CoordinatorFixture job(1, 2);
  job.Train();
  const auto report = [&](CoordinatorFixture::Process* worker, uint64_t version, uint64_t samples) {
    ReportEvaluationRequest request;
    *request.mutable_header() = worker->header;
    request.mutable_part()->set_version(version);
    request.mutable_part()->set_epoch(1);
    request.mutable_part()->set_samples(samples);
    request.mutable_part()->set_correct(samples / 2);
    Replies replies;
    return job.core.ReportEvaluation(request, job.now, replies).status().code();
  };
  EXPECT_EQ(report(job.workers[0], 5, 12), StatusCode::kOk);
  EXPECT_EQ(job.Status().evaluations_size(), 0);
  EXPECT_EQ(report(job.workers[1], 5, 7), StatusCode::kInvalidArgument);
  EXPECT_EQ(report(job.workers[1], 5, 8), StatusCode::kOk);
  EXPECT_EQ(report(job.workers[0], 99, 12), StatusCode::kInvalidArgument);
  ASSERT_EQ(job.Status().evaluations_size(), 1);
  EXPECT_EQ(job.Status().evaluations(0).samples(), 20u);
  EXPECT_EQ(job.Status().evaluations(0).correct(), 10u);
}

}  // namespace
}  // namespace parley
