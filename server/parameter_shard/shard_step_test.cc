#include <gtest/gtest.h>

#include <variant>
#include <vector>

#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

TEST(ShardTest, AStepIsDecidedWhenAllContributorsAreComplete) {
  ShardCluster cluster(MeanJob(), MakeView({.workers = 2}));
  cluster.PushAll(0, 1, 0, 2);
  auto first = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  EXPECT_FALSE(first->has_value());
  cluster.PushAll(1, 1, 0, 4);
  auto second = cluster.Complete(cluster.MakeComplete(1, 1, 0));
  EXPECT_EQ(VerdictOf(first).outcome(), Verdict::APPLY);
  EXPECT_EQ(VerdictOf(second).total_weight(), 2);
  EXPECT_EQ(cluster.Values("w", 1), Floats({-3, -3, -3, -3}));
  ASSERT_EQ(cluster.reported().size(), 1u);
  EXPECT_EQ(cluster.reported()[0].shares_size(), 2);
}

TEST(ShardTest, TheMeanIsWeighted) {
  ShardCluster cluster(MeanJob(), MakeView({.workers = 2}));
  cluster.PushAll(0, 1, 0, 3);         // mean 3, weight 1
  cluster.PushAll(1, 1, 0, 0.5f * 6);  // mean 6, weight 0.5
  cluster.Complete(cluster.MakeComplete(0, 1, 0, 1));
  cluster.Complete(cluster.MakeComplete(1, 1, 0, 0.5));
  EXPECT_EQ(cluster.Values("w", 1)[0], -6.0f / 1.5f);
}

TEST(ShardTest, WithTwoShardsTheFollowerDecidesWhatTheLeaderDoes) {
  ShardCluster cluster(SummingJob(),
                       MakeView({.tensors = {{"a", 3}, {"b", 5}}, .shards = 2, .workers = 2}));
  for (uint64_t step = 1; step <= 3; ++step) {
    for (uint32_t worker : {0, 1}) {
      cluster.PushAll(worker, step, 0, 1);
      cluster.Complete(cluster.MakeComplete(worker, step, 0));
    }
    auto parked = cluster.Pull(0, 1, step);
    EXPECT_FALSE(parked->has_value());  // slice 1 is on shard 1, which does not know the verdict
    cluster.Deliver();
    EXPECT_TRUE(parked->has_value());
  }
  EXPECT_EQ(cluster.Values("a", 3), Floats(3, -6));
  EXPECT_EQ(cluster.Values("b", 3), Floats(5, -6));
}

// What its pushes of the leader's slices would bring, in the message itself.
void Carry(const ShardCluster& cluster, CompleteRequest& complete, uint32_t worker, float value) {
  for (const Slice& slice : cluster.view().slices()) {
    if (slice.shard() != cluster.view().step_leader()) continue;
    const Floats values(slice.end() - slice.begin(), value);
    *complete.add_pushed() =
        cluster.MakePush(worker, complete.step(), complete.attempt(), slice.id(), values).slices(0);
    complete.add_pulled(slice.id());
  }
}

TEST(ShardTest, ASmallStepIsOneMessage) {
  ShardCluster cluster(SummingJob(), MakeView({.tensors = {{"a", 3}, {"b", 5}}, .workers = 2}));
  for (uint64_t step = 1; step <= 2; ++step) {
    CompleteRequest complete = cluster.MakeComplete(0, step, 0);
    Carry(cluster, complete, 0, 1);
    const auto first = cluster.Complete(complete);
    EXPECT_FALSE(first->has_value());
    const auto repeated = cluster.Complete(complete);  // its pushes are there already
    cluster.PushAll(1, step, 0, 2);
    cluster.Complete(cluster.MakeComplete(1, step, 0));
    const auto late = cluster.Complete(complete);
    for (const auto& answer : {first, repeated, late}) {
      EXPECT_EQ(VerdictOf(answer).outcome(), Verdict::APPLY);
      const CompleteReply& reply = ***answer;
      ASSERT_EQ(reply.values_size(), 2);
      const float value = -3.0F * static_cast<float>(step);
      EXPECT_EQ(reply.values(0).slice(), 0);
      EXPECT_EQ(FloatsOf(reply.values(0).data()), Floats(3, value));
      EXPECT_EQ(FloatsOf(reply.values(1).data()), Floats(5, value));
    }
  }
  // Of a version that has been passed there are no values.
  CompleteRequest complete = cluster.MakeComplete(0, 1, 0);
  complete.add_pulled(0);
  const auto answer = cluster.Complete(complete);
  EXPECT_EQ(VerdictOf(answer).outcome(), Verdict::APPLY);
  EXPECT_TRUE((**answer)->values().empty());
}

TEST(ShardTest, WhatACompleteCarriesIsCheckedLikeAPush) {
  ShardCluster cluster(SummingJob(), MakeView({.tensors = {{"a", 3}, {"b", 5}}, .workers = 2}));
  CompleteRequest good = cluster.MakeComplete(0, 1, 0);
  Carry(cluster, good, 0, 1);
  CompleteRequest wrong = good;
  wrong.mutable_pushed(1)->set_slice(7);
  EXPECT_EQ(CodeOf(cluster.Complete(wrong)), absl::StatusCode::kInvalidArgument);
  wrong = good;
  wrong.mutable_pushed(0)->set_data("abc");
  EXPECT_EQ(CodeOf(cluster.Complete(wrong)), absl::StatusCode::kInvalidArgument);
  wrong = good;
  wrong.set_pulled(1, 7);
  EXPECT_EQ(CodeOf(cluster.Complete(wrong)), absl::StatusCode::kInvalidArgument);
  wrong = good;
  wrong.add_none(1);
  EXPECT_EQ(CodeOf(cluster.Complete(wrong)), absl::StatusCode::kInvalidArgument);
  wrong = good;
  wrong.mutable_pushed()->RemoveLast();
  wrong.mutable_pushed(0)->set_slice(0);
  // Slice 1 came with the call before: that was refused for its `none` alone.
  const auto parked = cluster.Complete(wrong);
  EXPECT_FALSE(parked->has_value());
  cluster.PushAll(1, 1, 0, 2);
  cluster.Complete(cluster.MakeComplete(1, 1, 0));
  EXPECT_EQ(VerdictOf(parked).outcome(), Verdict::APPLY);
  EXPECT_EQ(cluster.Values("b", 1), Floats(5, -3));
}

TEST(ShardTest, WithoutPushesACompleteWaits) {
  ShardCluster cluster(SummingJob(), MakeView({.tensors = {{"a", 3}, {"b", 5}}, .workers = 1}));
  CompleteRequest complete = cluster.MakeComplete(0, 1, 0);
  Carry(cluster, complete, 0, 1);
  complete.mutable_pushed()->RemoveLast();
  EXPECT_EQ(CodeOf(cluster.Complete(complete)), absl::StatusCode::kUnavailable);
}

TEST(ShardTest, AContributorWithoutDataCompletesWithWeightZero) {
  ShardCluster cluster(MeanJob(), MakeView({.workers = 2}));
  cluster.PushAll(0, 1, 0, 3);
  cluster.Complete(cluster.MakeComplete(0, 1, 0));
  CompleteRequest complete = cluster.MakeComplete(1, 1, 0, 0);
  complete.add_none(0);
  EXPECT_EQ(VerdictOf(cluster.Complete(complete)).total_weight(), 1);
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -3));
}

// Two contributors, each a group of two members with half of slice 0 each; slice 1 is tied: both
// ends have the whole of it.
ClusterView GroupView() {
  ClusterView view = MakeView({.tensors = {{"cut", 4}, {"tied", 2}}, .workers = 4});
  view.clear_contributors();
  for (uint32_t c : {0, 1}) {
    Contributor& contributor = *view.add_contributors();
    contributor.set_ordinal(c);
    for (uint32_t p : {0, 1}) {
      contributor.add_part_members(1 + 2 * c + p);
      for (int s : {0, 1}) {
        SlicePart& part = *view.mutable_slices(s)->add_parts();
        part.set_contributor(c);
        part.set_part(p);
        part.set_begin(s == 0 ? 2 * p : 0);
        part.set_end(s == 0 ? 2 * p + 2 : 2);
      }
    }
  }
  return view;
}

TEST(ShardTest, PartsOfAContributorAddToTheirRangesAndItsWeightCountsOnce) {
  ShardCluster cluster(MeanJob(), GroupView());
  ShardCluster::CompleteResult last;
  for (uint32_t c : {0, 1}) {
    for (uint32_t p : {0, 1}) {
      const uint32_t member = 2 * c + p;
      for (uint32_t slice : {0, 1}) {
        if (c == 1 && p == 1 && slice == 1) continue;  // this end of the tied one has none
        PushRequest push = cluster.MakePush(member, 1, 0, slice, {2.f + p, 2.f + p});
        push.set_contributor(c);
        push.set_part(p);
        ASSERT_EQ(OutcomeOf(cluster.Push(push)), ADDED);
      }
      CompleteRequest complete = cluster.MakeComplete(member, 1, 0);
      complete.mutable_share()->set_contributor(c);
      complete.set_part(p);
      if (c == 1 && p == 1) complete.add_none(1);
      last = cluster.Complete(complete);
    }
  }
  EXPECT_EQ(VerdictOf(last).total_weight(), 2);
  EXPECT_EQ(cluster.Values("cut", 1), Floats({-2, -2, -3, -3}));
  EXPECT_EQ(cluster.Values("tied", 1), Floats(2, -(2 + 3 + 2) / 2.f));
}

TEST(ShardTest, ARepeatedCompleteGetsTheSameVerdictAndAnotherOneIsRefused) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}));
  for (uint32_t worker : {0, 1}) cluster.PushAll(worker, 1, 0, 1);
  cluster.Complete(cluster.MakeComplete(0, 1, 0));
  EXPECT_EQ(CodeOf(cluster.Complete(cluster.MakeComplete(0, 1, 0, 0.5))),
            absl::StatusCode::kInvalidArgument);
  cluster.Complete(cluster.MakeComplete(1, 1, 0));
  EXPECT_EQ(VerdictOf(cluster.Complete(cluster.MakeComplete(0, 1, 0))).step(), 1u);
  EXPECT_EQ(cluster.reported().size(), 1u);
}

// A worker on the same machine does not wait for its pushes to be acknowledged before it completes.
TEST(ShardTest, ACompleteThatHasOvertakenItsPushesHasToComeAgain) {
  ShardCluster cluster(SummingJob(),
                       MakeView({.tensors = {{"a", 2}, {"b", 2}, {"c", 2}}, .workers = 2}));
  cluster.PushAll(0, 1, 0, 1);
  auto first = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  CompleteRequest complete = cluster.MakeComplete(1, 1, 0);
  complete.add_none(1);
  ASSERT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(1, 1, 0, 0, {2, 2}))), ADDED);
  CompleteRequest wrong = complete;
  wrong.add_none(0);
  EXPECT_EQ(CodeOf(cluster.Complete(wrong)), absl::StatusCode::kInvalidArgument);
  auto early = cluster.Complete(complete);
  EXPECT_EQ(CodeOf(early), absl::StatusCode::kUnavailable);
  EXPECT_EQ(early->value().status().message(),
            "step 1 attempt 0 is completed before c@0:2 has come");
  EXPECT_FALSE(first->has_value());
  ASSERT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(1, 1, 0, 2, {4, 4}))), ADDED);
  EXPECT_EQ(VerdictOf(cluster.Complete(complete)).outcome(), Verdict::APPLY);
  EXPECT_EQ(VerdictOf(first).outcome(), Verdict::APPLY);
  EXPECT_EQ(cluster.Values("a", 1), Floats(2, -3));
  EXPECT_EQ(cluster.Values("c", 1), Floats(2, -5));
}

TEST(ShardTest, ALossOnAnotherShardFailsTheJob) {
  ShardCluster cluster(SummingJob(), MakeView({.tensors = {{"a", 2}, {"b", 2}}, .shards = 2}));
  ASSERT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(0, 1, 0, 0, {1, 1}))), ADDED);
  cluster.Complete(cluster.MakeComplete(0, 1, 0));  // b, on shard 1, was not pushed
  const std::vector<ToShard> outbox = cluster.leader().TakeOutbox();
  ASSERT_EQ(outbox.size(), 1u);
  Replies replies;
  auto reply =
      cluster.shard(1).Decide(std::get<DecideRequest>(outbox[0].request), cluster.now(), replies);
  EXPECT_TRUE(absl::IsInternal(reply.status())) << reply.status();
  EXPECT_TRUE(cluster.shard(1).error().has_value());
}

TEST(ShardTest, ASumThatHoldsWhatDoesNotCountFailsTheJob) {
  ShardCluster cluster(SummingJob(),
                       MakeView({.tensors = {{"a", 2}, {"b", 2}}, .shards = 2, .workers = 2}));
  for (uint32_t worker : {0, 1}) cluster.PushAll(worker, 1, 0, 1);
  DecideRequest decide;  // as no leader sends it
  *decide.mutable_header() = HeaderOf(cluster.view(), 101);
  decide.mutable_verdict()->set_step(1);
  decide.mutable_verdict()->set_outcome(Verdict::APPLY);
  decide.mutable_verdict()->add_shares()->set_contributor(0);
  Replies replies;
  const absl::Status status = cluster.shard(1).Decide(decide, cluster.now(), replies).status();
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_EQ(cluster.shard(1).version(), 0u);
}

}  // namespace
}  // namespace parley::testing
