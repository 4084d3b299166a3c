#include <gtest/gtest.h>

#include <cstdint>

#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

TEST(ShardTest, AFencedContributorsPushIsTakenOutByARetry) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}));
  cluster.PushAll(0, 1, 0, 1);
  auto first = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  cluster.PushAll(1, 1, 0, 1000);
  const PushRequest late = cluster.MakePush(1, 1, 1, 0, {1, 1, 1, 1});
  cluster.SetView(Without(cluster.view(), 1));
  EXPECT_EQ(VerdictOf(first).outcome(), Verdict::RETRY);
  EXPECT_TRUE(absl::IsAborted(cluster.Push(late).status()));
  EXPECT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(0, 1, 0, 0, {1, 1, 1, 1}))), STALE);
  cluster.PushAll(0, 1, 1, 1);
  EXPECT_EQ(VerdictOf(cluster.Complete(cluster.MakeComplete(0, 1, 1))).outcome(), Verdict::APPLY);
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -1));
  EXPECT_EQ(VerdictOf(cluster.Complete(cluster.MakeComplete(0, 1, 0))).outcome(), Verdict::RETRY);
  EXPECT_EQ(cluster.reported().size(), 2u);
}

TEST(ShardTest, NoRetryWhereTheFencedContributorHadSentNothing) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}));
  cluster.PushAll(0, 1, 0, 1);
  auto first = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  cluster.SetView(Without(cluster.view(), 1));
  EXPECT_EQ(VerdictOf(first).outcome(), Verdict::APPLY);
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -1));
}

TEST(ShardTest, NoRetryWhereContributionsAreKeptApart) {
  JobConfig job = SummingJob();
  job.mutable_consistency()->mutable_sync()->set_deterministic(true);
  ShardCluster cluster(job, MakeView({.workers = 2}));
  cluster.PushAll(0, 1, 0, 1);
  auto first = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  cluster.PushAll(1, 1, 0, 1000);
  cluster.SetView(Without(cluster.view(), 1));
  EXPECT_EQ(VerdictOf(first).outcome(), Verdict::APPLY);
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -1));
}

TEST(ShardTest, DeadAfterItsCompleteIsInEverySlice) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}));
  cluster.PushAll(1, 1, 0, 10);
  cluster.Complete(cluster.MakeComplete(1, 1, 0));
  cluster.SetView(Without(cluster.view(), 1));
  cluster.PushAll(0, 1, 0, 1);
  EXPECT_EQ(VerdictOf(cluster.Complete(cluster.MakeComplete(0, 1, 0))).shares_size(), 2);
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -11));
  cluster.PushAll(0, 2, 0, 1);
  EXPECT_EQ(VerdictOf(cluster.Complete(cluster.MakeComplete(0, 2, 0))).shares_size(), 1);
}

TEST(ShardTest, AJoinAbortsNobodysPushAndTheJoinerTakesPartFromTheNextStep) {
  ClusterView small = MakeView({.workers = 1});
  ShardCluster cluster(SummingJob(), small);
  const PushRequest push = cluster.MakePush(0, 1, 0, 0, {1, 1, 1, 1});
  const CompleteRequest complete = cluster.MakeComplete(0, 1, 0);
  ClusterView large = MakeView({.workers = 2, .view_epoch = 2});
  cluster.SetView(large);
  EXPECT_EQ(OutcomeOf(cluster.Push(push)), ADDED);  // with the older view
  EXPECT_EQ(VerdictOf(cluster.Complete(complete)).shares_size(), 1);
  for (uint32_t worker : {0, 1}) {
    cluster.PushAll(worker, 2, 0, 1);
    cluster.Complete(cluster.MakeComplete(worker, 2, 0));
  }
  EXPECT_EQ(cluster.Values("w", 2), Floats(4, -3));
}

TEST(ShardTest, TheReplacementOfAnOrdinalTakesItsPlaceInTheOpenStep) {
  ClusterView view = MakeView({.workers = 2});
  ShardCluster cluster(SummingJob(), view);
  cluster.PushAll(0, 1, 0, 1);
  auto first = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  const PushRequest old = cluster.MakePush(1, 1, 0, 0, {9, 9, 9, 9});
  view = WithMemberAt(view, 1, 50);
  cluster.SetView(view);
  EXPECT_FALSE(first->has_value());  // it waits for the replacement
  EXPECT_TRUE(absl::IsAborted(cluster.Push(old).status()));
  PushRequest push = cluster.MakePush(0, 1, 0, 0, {2, 2, 2, 2});
  *push.mutable_header() = HeaderOf(view, 50);
  push.set_contributor(1);
  EXPECT_EQ(OutcomeOf(cluster.Push(push)), ADDED);
  CompleteRequest complete = cluster.MakeComplete(1, 1, 0);
  *complete.mutable_header() = HeaderOf(view, 50);
  cluster.Complete(complete);
  EXPECT_EQ(VerdictOf(first).shares_size(), 2);
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -3));
}

TEST(ShardTest, AViewThatMovesSlicesIsRefused) {
  ClusterView view = MakeView({.tensors = {{"a", 1}, {"b", 1}}, .shards = 2});
  ShardCluster cluster(SummingJob(), view);
  view.set_view_epoch(2);
  view.mutable_slices(0)->set_shard(1);
  Replies replies;
  EXPECT_EQ(cluster.shard(0).SetView(view, cluster.now(), replies).code(),
            absl::StatusCode::kUnimplemented);
}

TEST(ShardTest, ARollbackAbortsWhoeverKnowsTheOlderEpoch) {
  ClusterView view = MakeView({});
  ShardCluster cluster(SummingJob(), view);
  cluster.PushAll(0, 1, 0, 1);
  const PushRequest old = cluster.MakePush(0, 1, 0, 0, {1, 1, 1, 1});
  auto parked = cluster.Pull(0, 0, 5);
  view.set_job_epoch(1);
  view.set_view_epoch(2);
  view.set_start_version(7);
  view.set_start_from("somewhere");
  cluster.SetView(view);
  ASSERT_TRUE(parked->has_value());
  EXPECT_TRUE(absl::IsAborted((*parked)->status()));
  EXPECT_TRUE(absl::IsAborted(cluster.Push(old).status()));
  EXPECT_FALSE(cluster.shard(0).ready());
  EXPECT_EQ(cluster.shard(0).version(), 7u);
}

}  // namespace
}  // namespace parley::testing
