#include <gtest/gtest.h>

#include <vector>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace parley {
namespace {

using absl::StatusCode;

TEST(CoordinatorTest, NewIncarnationFencesTheOldOne) {
  CoordinatorFixture job(1, 2);
  auto& old = job.StartAndJoin(WORKER);
  auto& other = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Register(old).ok());
  job.Watch(old);  // tells the state at once
  job.Watch(old);  // parks
  ASSERT_FALSE(old.watched.has_value());

  auto& replacement = job.Start(WORKER);
  replacement.address = old.address;
  ASSERT_TRUE(job.Join(replacement).ok());
  EXPECT_EQ(replacement.ordinal, old.ordinal);
  EXPECT_NE(replacement.header.member(), old.header.member());
  ASSERT_TRUE(old.watched.has_value());
  EXPECT_EQ(old.watched->status().code(), StatusCode::kAborted);

  EXPECT_EQ(job.Heartbeat(old).code(), StatusCode::kAborted);
  EXPECT_EQ(job.Register(old).code(), StatusCode::kAborted);
  EXPECT_EQ(job.Fail(old, "too late").code(), StatusCode::kAborted);
  EXPECT_EQ(job.Leave(old).code(), StatusCode::kAborted);
  EXPECT_EQ(job.Join(old).code(), StatusCode::kAborted);
  EXPECT_EQ(job.core.phase(), GATHERING);

  // What the fenced one registered counts no more.
  job.StartAndJoin(SHARD);
  ASSERT_TRUE(job.Register(other).ok());
  EXPECT_EQ(job.core.phase(), GATHERING);
  ASSERT_TRUE(job.Register(replacement).ok());
  EXPECT_EQ(job.core.phase(), PREPARING);
}

TEST(CoordinatorTest, EveryCallOfAStrangerIsRefusedWithoutEffect) {
  CoordinatorFixture job(1, 1);
  job.Train();
  const CallHeader right = job.workers[0]->header;
  struct Case {
    const char* what;
    CallHeader header;
    StatusCode code;
  };
  std::vector<Case> cases;
  CallHeader header = right;
  header.set_job("letters");
  cases.push_back({"another job", header, StatusCode::kNotFound});
  header = right;
  header.set_incarnation(right.incarnation() + 1);
  cases.push_back({"another incarnation", header, StatusCode::kAborted});
  header = right;
  header.set_member(99);
  cases.push_back({"no member", header, StatusCode::kAborted});
  for (const Case& one : cases) {
    CoordinatorFixture::Process stranger;
    stranger.role = WORKER;
    stranger.header = one.header;
    EXPECT_EQ(job.Heartbeat(stranger).code(), one.code) << one.what;
    EXPECT_EQ(job.Register(stranger).code(), one.code) << one.what;
    EXPECT_EQ(job.Ready(stranger).code(), one.code) << one.what;
    EXPECT_EQ(job.Report(stranger, {job.NextVerdict()}).code(), one.code) << one.what;
    EXPECT_EQ(job.Finish(stranger, 1).code(), one.code) << one.what;
    EXPECT_EQ(job.ReportFile(job.FileOf(stranger, 1)).code(), one.code) << one.what;
    EXPECT_EQ(job.Fail(stranger, "x").code(), one.code) << one.what;
    EXPECT_EQ(job.Leave(stranger).code(), one.code) << one.what;
    job.Watch(stranger);
    ASSERT_TRUE(stranger.watched.has_value());
    EXPECT_EQ(stranger.watched->status().code(), one.code) << one.what;
    ReportEvaluationRequest evaluation;
    *evaluation.mutable_header() = one.header;
    Replies replies;
    EXPECT_EQ(job.core.ReportEvaluation(evaluation, job.now, replies).status().code(), one.code);
  }
  EXPECT_EQ(job.core.phase(), TRAINING);
  EXPECT_EQ(job.core.progress().step(), 0u);
}

TEST(CoordinatorTest, CallsOnTheJobsStateAreFencedByEpochs) {
  CoordinatorFixture job(1, 1);
  job.Train();
  auto shard = *job.shards[0];
  shard.header.set_view_epoch(2);
  EXPECT_EQ(job.Report(shard, {job.NextVerdict()}).code(), StatusCode::kFailedPrecondition);
  shard = *job.shards[0];
  shard.header.set_job_epoch(2);
  EXPECT_EQ(job.Report(shard, {job.NextVerdict()}).code(), StatusCode::kFailedPrecondition);
  shard = *job.shards[0];
  shard.header.set_job_epoch(0);
  EXPECT_EQ(job.Report(shard, {job.NextVerdict()}).code(), StatusCode::kAborted);
  shard = *job.shards[0];
  shard.header.set_view_epoch(0);
  EXPECT_EQ(job.Report(shard, {job.NextVerdict()}).code(), StatusCode::kFailedPrecondition);
  // A lease is renewed whatever the caller knows of the job's state.
  EXPECT_TRUE(job.Heartbeat(shard).ok());
  EXPECT_EQ(job.core.progress().step(), 0u);
}

TEST(CoordinatorTest, NothingButStatusIsAnsweredBeforeTheCoordinatorOwnsTheJob) {
  CoordinatorCore core(CoordinatorFixture::DefaultOptions(1, 1));
  const absl::Time now = absl::UnixEpoch();
  Replies replies;
  EXPECT_EQ(core.Join({}, now, replies).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(core.Heartbeat({}, now, replies).status().code(), StatusCode::kUnavailable);
  ASSERT_TRUE(core.GetStatus({}, now).ok());
  EXPECT_EQ(core.GetStatus({}, now)->generation(), 0u);
}

TEST(CoordinatorTest, OnlyTheStepLeaderReportsVerdicts) {
  CoordinatorFixture job(2, 1);
  job.Train();
  EXPECT_EQ(job.Report(*job.shards[1], {job.NextVerdict()}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(job.Report(*job.workers[0], {job.NextVerdict()}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(job.Ready(*job.workers[0]).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(job.Finish(*job.shards[0], 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(job.core.progress().step(), 0u);
}

}  // namespace
}  // namespace parley
