// How a worker learns where the job is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

using ::testing::ElementsAre;

absl::StatusCode CodeOf(const ShardCluster::EnterResult& result) {
  EXPECT_TRUE(result->has_value()) << "not answered";
  return result->has_value() ? (*result)->status().code() : absl::StatusCode::kOk;
}

EnterReply ReplyOf(const ShardCluster::EnterResult& result) {
  EXPECT_TRUE(result->has_value()) << "not answered";
  if (!result->has_value()) return EnterReply();
  EXPECT_EQ((*result)->status(), absl::OkStatus());
  return (*result)->ok() ? ***result : EnterReply();
}

TEST(ShardEnterTest, AContributorOfTheOpenStepLearnsAtOnceWhereTheJobIs) {
  ClusterView view = MakeView({.workers = 2});
  view.set_start_version(7);
  view.set_training_samples(10);
  view.mutable_data_position()->set_epoch(2);
  ShardCluster cluster(SummingJob(), view);
  EnterReply reply = ReplyOf(cluster.Enter(cluster.worker(1), 1));
  EXPECT_EQ(reply.step(), 8u);
  EXPECT_EQ(reply.attempt(), 0u);
  EXPECT_EQ(reply.position().epoch(), 2u);
  EXPECT_EQ(reply.view_epoch(), 1u);
  EXPECT_THAT(reply.contributors(), ElementsAre(0, 1));
  CompleteRequest complete = cluster.MakeComplete(0, 8, 0);
  complete.set_data_epoch(2);
  complete.mutable_share()->add_ranges()->set_end(4);
  for (uint32_t worker : {0, 1}) cluster.PushAll(worker, 8, 0, 1);
  cluster.Complete(complete);
  CompleteRequest other = cluster.MakeComplete(1, 8, 0);
  other.set_data_epoch(2);
  cluster.Complete(other);
  reply = ReplyOf(cluster.Enter(cluster.worker(1), 1));
  EXPECT_EQ(reply.step(), 9u);
  ASSERT_EQ(reply.position().used_size(), 1);
  EXPECT_EQ(reply.position().used(0).end(), 4u);
}

TEST(ShardEnterTest, OneThatJoinsWaitsForTheNextStep) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 1}));
  cluster.SetView(WithMemberAt(cluster.view(), 1, 2));
  auto entered = cluster.Enter(cluster.worker(1), 1);
  EXPECT_FALSE(entered->has_value());
  cluster.PushAll(0, 1, 0, 1);
  cluster.Complete(cluster.MakeComplete(0, 1, 0));
  EXPECT_EQ(ReplyOf(entered).step(), 2u);
  EXPECT_EQ(ReplyOf(entered).view_epoch(), 2u);
  EXPECT_THAT(ReplyOf(entered).contributors(), ElementsAre(0, 1));
}

TEST(ShardEnterTest, OneThatTakesAnAwaitedPlaceEntersTheOpenStepAndLearnsHowItWasDivided) {
  const ClusterView view = MakeView({.workers = 3});
  ShardCluster cluster(SummingJob(), view);
  cluster.PushAll(1, 1, 0, 100);
  cluster.SetView(Without(WithNobodyAt(view, 1), 2));
  cluster.SetView(WithMemberAt(cluster.view(), 1, 9));
  const EnterReply reply = ReplyOf(cluster.Enter(HeaderOf(cluster.view(), 9), 1));
  EXPECT_EQ(reply.step(), 1u);
  EXPECT_EQ(reply.attempt(), 1u);
  EXPECT_EQ(reply.view_epoch(), 1u);
  EXPECT_THAT(reply.contributors(), ElementsAre(0, 1, 2));
}

TEST(ShardEnterTest, OneThatReplacesACompleteOneWaitsForTheNextStep) {
  const ClusterView view = MakeView({.workers = 2});
  ShardCluster cluster(SummingJob(), view);
  cluster.PushAll(1, 1, 0, 10);
  cluster.Complete(cluster.MakeComplete(1, 1, 0));
  cluster.SetView(WithMemberAt(view, 1, 9));
  auto entered = cluster.Enter(HeaderOf(cluster.view(), 9), 1);
  EXPECT_FALSE(entered->has_value());
  cluster.PushAll(0, 1, 0, 1);
  cluster.Complete(cluster.MakeComplete(0, 1, 0));
  EXPECT_EQ(ReplyOf(entered).step(), 2u);
}

TEST(ShardEnterTest, OneThatReplacesACompleteOneEntersWhenTheStepIsRetried) {
  const ClusterView view = MakeView({.workers = 3});
  ShardCluster cluster(SummingJob(), view);
  cluster.PushAll(1, 1, 0, 10);
  cluster.Complete(cluster.MakeComplete(1, 1, 0));
  cluster.PushAll(2, 1, 0, 100);
  cluster.SetView(WithMemberAt(view, 1, 9));
  auto entered = cluster.Enter(HeaderOf(cluster.view(), 9), 1);
  EXPECT_FALSE(entered->has_value());
  cluster.SetView(Without(cluster.view(), 2));
  EXPECT_EQ(ReplyOf(entered).step(), 1u);
  EXPECT_EQ(ReplyOf(entered).attempt(), 1u);
}

TEST(ShardEnterTest, WhoIsRemovedWhileItWaitsHasToRejoin) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 1}));
  cluster.SetView(WithMemberAt(cluster.view(), 1, 2));
  auto entered = cluster.Enter(cluster.worker(1), 1);
  cluster.SetView(Without(cluster.view(), 1));
  EXPECT_EQ(CodeOf(entered), absl::StatusCode::kAborted);
}

TEST(ShardEnterTest, OneThatWaitsTooLongLearnsForWhom) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 1}));
  cluster.SetView(WithMemberAt(cluster.view(), 1, 2));
  auto entered = cluster.Enter(cluster.worker(1), 1, absl::Seconds(3));
  EXPECT_EQ(cluster.leader().NextDeadline(), cluster.now() + absl::Seconds(3));
  cluster.Advance(absl::Seconds(3));
  ASSERT_EQ(CodeOf(entered), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ((*entered)->status().message(),
            "contributor 1 has no part in step 1 yet: in step 1 attempt 0 worker 0 at 10.0.1.0:1 "
            "(pid 0) did not complete (since 1970-01-12T13:46:40.000Z, 3.0 s)");
}

TEST(ShardEnterTest, WhoIsNotThatContributorIsRefused) {
  const ClusterView view = MakeView({.workers = 2});
  ShardCluster cluster(SummingJob(), view);
  EXPECT_EQ(CodeOf(cluster.Enter(cluster.worker(1), 0)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(cluster.Enter(cluster.worker(1), 5)), absl::StatusCode::kInvalidArgument);
  CallHeader newer = cluster.worker(1);
  newer.set_view_epoch(2);
  EXPECT_EQ(CodeOf(cluster.Enter(newer, 1)), absl::StatusCode::kFailedPrecondition);
  CallHeader other = cluster.worker(1);
  other.set_incarnation(99);
  EXPECT_EQ(CodeOf(cluster.Enter(other, 1)), absl::StatusCode::kAborted);
}

TEST(ShardEnterTest, AShardThatDoesNotLeadKnowsNothing) {
  ShardCluster cluster(SummingJob(), MakeView({.tensors = {{"a", 1}, {"b", 1}}, .shards = 2}));
  EnterRequest request;
  *request.mutable_header() = cluster.worker(0);
  absl::Status status;
  {
    Replies replies;
    cluster.shard(1).Enter(
        request, {cluster.now()}, replies,
        [&](const absl::StatusOr<EnterReply>& reply) { status = reply.status(); });
  }
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST(ShardEnterTest, ItWaitsForTheStartValues) {
  ShardCluster cluster(SummingJob(), MakeView({}), /*start=*/false);
  auto entered = cluster.Enter(cluster.worker(0), 0);
  EXPECT_FALSE(entered->has_value());
  cluster.GiveStartValues();
  EXPECT_EQ(ReplyOf(entered).step(), 1u);
}

TEST(ShardEnterTest, NobodyStaysParkedWhenTheJobEndsOrGoesBack) {
  for (const std::string how : {"fail", "stop", "rollback"}) {
    ShardCluster cluster(SummingJob(), MakeView({.workers = 1}));
    cluster.SetView(WithMemberAt(cluster.view(), 1, 2));
    auto entered = cluster.Enter(cluster.worker(1), 1);
    ASSERT_FALSE(entered->has_value());
    if (how == "rollback") {
      ClusterView view = cluster.view();
      view.set_job_epoch(1);
      view.set_view_epoch(3);
      view.set_start_from("somewhere");
      cluster.SetView(view);
      EXPECT_EQ(CodeOf(entered), absl::StatusCode::kAborted);
      continue;
    }
    {
      Replies replies;
      if (how == "fail") {
        cluster.leader().Fail(FirstCause(), replies);
      } else {
        cluster.leader().Stop(replies);
      }
    }
    EXPECT_EQ(CodeOf(entered), absl::StatusCode::kUnavailable) << how;
  }
}

}  // namespace
}  // namespace parley::testing
