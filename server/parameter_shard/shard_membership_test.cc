// Who takes part in which step, on the step leader and on the other shards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Slice 0 lies on the leader, slice 1 on shard 1.
ClusterView TwoShards(uint32_t workers) {
  return MakeView({.tensors = {{"a", 2}, {"b", 2}}, .shards = 2, .workers = workers});
}

PushRequest PushOf(const ShardCluster& cluster, const CallHeader& header, uint32_t contributor,
                   uint64_t step, uint32_t attempt, uint32_t slice, float value) {
  const Slice& spec = cluster.view().slices(static_cast<int>(slice));
  PushRequest push =
      cluster.MakePush(contributor, step, attempt, slice, Floats(spec.end() - spec.begin(), value));
  *push.mutable_header() = header;
  return push;
}

// Pushes to all slices and completes.
ShardCluster::CompleteResult Contribute(ShardCluster& cluster, uint64_t member,
                                        uint32_t contributor, uint64_t step, uint32_t attempt,
                                        float value) {
  const CallHeader header = HeaderOf(cluster.view(), member);
  for (const Slice& slice : cluster.view().slices()) {
    EXPECT_EQ(OutcomeOf(cluster.Push(
                  PushOf(cluster, header, contributor, step, attempt, slice.id(), value))),
              ADDED);
  }
  CompleteRequest complete = cluster.MakeComplete(contributor, step, attempt);
  *complete.mutable_header() = header;
  return cluster.Complete(complete);
}

absl::Status DecideOn(ShardCluster& cluster, uint32_t shard, const DecideRequest& decide) {
  Replies replies;
  return cluster.shard(shard).Decide(decide, cluster.now(), replies).status();
}

DecideRequest TakeDecide(ShardCluster& cluster) {
  const std::vector<ToShard> outbox = cluster.leader().TakeOutbox();
  EXPECT_EQ(outbox.size(), 1u);
  return outbox.empty() ? DecideRequest() : std::get<DecideRequest>(outbox[0].request);
}

TEST(ShardMembershipTest, AVerdictNamesTheLeadersNewestViewAndNoShardGoesOnWithoutIt) {
  const ClusterView view = TwoShards(1);
  ShardCluster cluster(SummingJob(), view);
  auto complete = Contribute(cluster, 1, 0, 1, 0, 1);
  DecideRequest first = TakeDecide(cluster);
  EXPECT_EQ(VerdictOf(complete).view_epoch(), 1u);
  EXPECT_THAT(VerdictOf(complete).contributors(), ElementsAre(0));
  ASSERT_EQ(DecideOn(cluster, 1, first), absl::OkStatus());

  // The leader, but not shard 1, hears of a worker that joins.
  const ClusterView larger = WithMemberAt(view, 1, 2);
  cluster.SetViewOf(0, larger);
  for (uint32_t slice : {0, 1}) {
    ASSERT_EQ(OutcomeOf(cluster.Push(PushOf(cluster, HeaderOf(view, 1), 0, 2, 0, slice, 1))),
              ADDED);
  }
  complete = cluster.Complete(cluster.MakeComplete(0, 2, 0));
  EXPECT_EQ(VerdictOf(complete).view_epoch(), 2u);
  EXPECT_THAT(VerdictOf(complete).contributors(), ElementsAre(0, 1));
  DecideRequest second = TakeDecide(cluster);
  EXPECT_TRUE(absl::IsFailedPrecondition(DecideOn(cluster, 1, second)));
  second.mutable_header()->set_view_epoch(1);
  EXPECT_TRUE(absl::IsUnavailable(DecideOn(cluster, 1, second)));
  EXPECT_EQ(cluster.shard(1).version(), 1u);
  cluster.SetViewOf(1, larger);
  EXPECT_EQ(DecideOn(cluster, 1, second), absl::OkStatus());
  EXPECT_EQ(cluster.shard(1).version(), 2u);
}

TEST(ShardMembershipTest, AViewThatIsNewerThanTheNamedOneWaitsForItsVerdict) {
  const ClusterView view = TwoShards(1);
  const ClusterView larger = WithMemberAt(view, 1, 2);
  ShardCluster cluster(SummingJob(), view);
  cluster.SetViewOf(1, larger);  // not the leader
  const CallHeader old = HeaderOf(view, 1);
  const auto step = [&](uint64_t number) {
    for (uint32_t slice : {0, 1}) {
      EXPECT_EQ(OutcomeOf(cluster.Push(PushOf(cluster, old, 0, number, 0, slice, 1))), ADDED);
    }
    CompleteRequest complete = cluster.MakeComplete(0, number, 0);
    *complete.mutable_header() = old;
    EXPECT_EQ(VerdictOf(cluster.Complete(complete)).view_epoch(), number == 1 ? 1u : 2u);
    cluster.Deliver();
  };
  step(1);
  // Step 2 is governed by the first view on both shards.
  const PushRequest early = PushOf(cluster, HeaderOf(larger, 2), 1, 2, 0, 1, 100);
  EXPECT_TRUE(absl::IsInvalidArgument(cluster.Push(early).status()));
  cluster.SetViewOf(0, larger);
  step(2);
  Contribute(cluster, 2, 1, 3, 0, 10);
  auto last = Contribute(cluster, 1, 0, 3, 0, 1);
  cluster.Deliver();
  EXPECT_EQ(VerdictOf(last).shares_size(), 2);
  EXPECT_EQ(cluster.Values("a", 3), Floats(2, -13));
  EXPECT_EQ(cluster.Values("b", 3), Floats(2, -13));
}

TEST(ShardMembershipTest, AShardThatNeverHadTheNamedViewGoesByTheNextNewerOne) {
  const ClusterView view = TwoShards(2);
  const ClusterView second = WithMemberAt(view, 2, 3);  // the leader's; shard 1 never has it
  const ClusterView third = Without(second, 1);         // shard 1's; the leader never has it
  const ClusterView fourth = WithMemberAt(third, 1, 4);
  ShardCluster cluster(SummingJob(), view);
  Contribute(cluster, 1, 0, 1, 0, 1);
  cluster.PushAll(1, 1, 0, 1);
  cluster.SetViewOf(0, second);
  auto complete = cluster.Complete(cluster.MakeComplete(1, 1, 0));
  EXPECT_THAT(VerdictOf(complete).contributors(), ElementsAre(0, 1, 2));
  cluster.SetViewOf(1, third);
  cluster.Deliver();
  EXPECT_EQ(cluster.shard(1).version(), 1u);
  // To the leader somebody has come in place 1 of the open step; to shard 1 that place is a new
  // one.
  cluster.SetView(fourth);
  cluster.Deliver();
  Contribute(cluster, 3, 2, 2, 1, 100);
  Contribute(cluster, 4, 1, 2, 1, 10);
  // Complete, it counts, though it is in neither the first view of the step nor the newest.
  cluster.SetView(Without(fourth, 1));
  auto last = Contribute(cluster, 1, 0, 2, 1, 1);
  cluster.Deliver();
  EXPECT_EQ(VerdictOf(last).shares_size(), 3);
  EXPECT_EQ(cluster.Values("b", 2), Floats(2, -113));
}

TEST(ShardMembershipTest, AStepWaitsForAPlaceThatNobodyHasAndSaysSo) {
  const ClusterView view = MakeView({.workers = 2});
  ShardCluster cluster(SummingJob(), view);
  auto first = Contribute(cluster, 1, 0, 1, 0, 1);
  const ClusterView waiting = WithNobodyAt(view, 1);
  cluster.SetView(waiting);
  EXPECT_FALSE(first->has_value());
  auto pull = cluster.Pull(0, 0, 1, absl::Seconds(1));
  cluster.Advance(absl::Seconds(1));
  EXPECT_THAT(std::string((*pull)->status().message()),
              HasSubstr("contributor 1 (nobody has its place) did not complete"));
  cluster.SetView(WithMemberAt(waiting, 1, 9));
  auto second = Contribute(cluster, 9, 1, 1, 0, 10);
  EXPECT_EQ(VerdictOf(first).shares_size(), 2);
  EXPECT_EQ(VerdictOf(second).attempt(), 0u);
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -11));
}

TEST(ShardMembershipTest, AStepOpenedByAViewWithAnEmptyPlaceWaitsForItToo) {
  ClusterView view = WithNobodyAt(TwoShards(2), 1);
  ShardCluster cluster(SummingJob(), view);
  auto first = Contribute(cluster, 1, 0, 1, 0, 1);
  EXPECT_FALSE(first->has_value());
  // That somebody takes the place is no reason to send anything again.
  view = WithMemberAt(view, 1, 9);
  cluster.SetView(view);
  EXPECT_FALSE(first->has_value());
  Contribute(cluster, 9, 1, 1, 0, 10);
  cluster.Deliver();
  EXPECT_EQ(VerdictOf(first).attempt(), 0u);
  EXPECT_EQ(cluster.Values("b", 1), Floats(2, -11));
}

TEST(ShardMembershipTest, ThatNobodyIsWaitedForAnyMoreDecidesTheStep) {
  const ClusterView waiting = WithNobodyAt(TwoShards(2), 1);
  ShardCluster cluster(SummingJob(), waiting);
  auto first = Contribute(cluster, 1, 0, 1, 0, 1);
  cluster.SetView(Without(waiting, 1));
  EXPECT_EQ(VerdictOf(first).outcome(), Verdict::APPLY);
  EXPECT_THAT(VerdictOf(first).contributors(), ElementsAre(0));
}

TEST(ShardMembershipTest, LostInTheMiddleOfItsPushesARetryDropsThemOnAllShards) {
  const ClusterView view = TwoShards(2);
  ShardCluster cluster(SummingJob(), view);
  auto first = Contribute(cluster, 1, 0, 1, 0, 1);
  // To shard 1 only: the leader has nothing of it.
  ASSERT_EQ(OutcomeOf(cluster.Push(PushOf(cluster, HeaderOf(view, 2), 1, 1, 0, 1, 100))), ADDED);
  const ClusterView waiting = WithNobodyAt(view, 1);
  cluster.SetViewOf(0, waiting);
  EXPECT_EQ(VerdictOf(first).outcome(), Verdict::RETRY);
  EXPECT_EQ(VerdictOf(first).view_epoch(), 2u);
  // On its way to shard 1, while the others send again already.
  EXPECT_EQ(OutcomeOf(cluster.Push(PushOf(cluster, HeaderOf(view, 1), 0, 1, 1, 0, 1))), ADDED);
  EXPECT_TRUE(absl::IsUnavailable(
      cluster.Push(PushOf(cluster, HeaderOf(view, 1), 0, 1, 1, 1, 1)).status()));
  const DecideRequest retry = TakeDecide(cluster);
  EXPECT_TRUE(absl::IsFailedPrecondition(DecideOn(cluster, 1, retry)));
  DecideRequest headless = retry;
  headless.mutable_header()->set_view_epoch(1);
  EXPECT_TRUE(absl::IsUnavailable(DecideOn(cluster, 1, headless)));
  EXPECT_EQ(cluster.shard(1).attempt(), 0u);
  cluster.SetViewOf(1, waiting);
  ASSERT_EQ(DecideOn(cluster, 1, retry), absl::OkStatus());
  EXPECT_TRUE(
      absl::IsAborted(cluster.Push(PushOf(cluster, HeaderOf(view, 2), 1, 1, 1, 1, 100)).status()));
  ASSERT_EQ(OutcomeOf(cluster.Push(PushOf(cluster, HeaderOf(view, 1), 0, 1, 1, 1, 1))), ADDED);
  cluster.Complete(cluster.MakeComplete(0, 1, 1));
  cluster.SetView(WithMemberAt(waiting, 1, 9));
  EXPECT_EQ(VerdictOf(Contribute(cluster, 9, 1, 1, 1, 10)).outcome(), Verdict::APPLY);
  cluster.Deliver();
  EXPECT_EQ(cluster.Values("a", 1), Floats(2, -11));
  EXPECT_EQ(cluster.Values("b", 1), Floats(2, -11));
}

TEST(ShardMembershipTest, ASuccessorsPushIsNeverMixedWithItsPredecessorsWhereTheyAreKeptApartToo) {
  JobConfig job = SummingJob();
  job.mutable_consistency()->mutable_sync()->set_deterministic(true);
  const ClusterView view = TwoShards(2);
  ShardCluster cluster(job, view);
  ASSERT_EQ(OutcomeOf(cluster.Push(PushOf(cluster, HeaderOf(view, 2), 1, 1, 0, 1, 100))), ADDED);
  cluster.SetView(WithMemberAt(view, 1, 9));
  cluster.Deliver();
  Contribute(cluster, 1, 0, 1, 1, 1);
  Contribute(cluster, 9, 1, 1, 1, 10);
  cluster.Deliver();
  EXPECT_EQ(cluster.Values("b", 1), Floats(2, -11));
}

TEST(ShardMembershipTest, AViewThatConcernsOthersDisturbsNoSuccessor) {
  ClusterView view = MakeView({.workers = 2});
  ShardCluster cluster(SummingJob(), view);
  view = WithMemberAt(view, 1, 9);
  cluster.SetView(view);
  auto successor = Contribute(cluster, 9, 1, 1, 0, 10);
  cluster.SetView(WithMemberAt(view, 2, 3));  // somebody joins
  auto first = Contribute(cluster, 1, 0, 1, 0, 1);
  EXPECT_EQ(VerdictOf(first).attempt(), 0u);
  EXPECT_EQ(VerdictOf(successor).shares_size(), 2);
  EXPECT_THAT(VerdictOf(first).contributors(), ElementsAre(0, 1, 2));
}

TEST(ShardMembershipTest, TwoLostAtOnceOneCompleteOneNot) {
  const ClusterView view = TwoShards(3);
  ShardCluster cluster(SummingJob(), view);
  auto complete = Contribute(cluster, 2, 1, 1, 0, 10);
  auto first = Contribute(cluster, 1, 0, 1, 0, 1);
  ASSERT_EQ(OutcomeOf(cluster.Push(PushOf(cluster, HeaderOf(view, 3), 2, 1, 0, 0, 100))), ADDED);
  cluster.SetView(Without(WithNobodyAt(view, 1), 2));
  EXPECT_EQ(VerdictOf(first).outcome(), Verdict::RETRY);
  EXPECT_EQ(VerdictOf(complete).outcome(), Verdict::RETRY);
  cluster.Deliver();
  first = Contribute(cluster, 1, 0, 1, 1, 1);
  EXPECT_FALSE(first->has_value()) << "its place is kept, so the attempt waits for it";
  cluster.SetView(WithMemberAt(cluster.view(), 1, 9));
  Contribute(cluster, 9, 1, 1, 1, 20);
  cluster.Deliver();
  EXPECT_EQ(VerdictOf(first).shares_size(), 2);
  EXPECT_EQ(cluster.Values("b", 1), Floats(2, -21));
}

TEST(ShardMembershipTest, ACompleteOneThatIsReplacedCountsAndItsSuccessorsCompleteOnlyWaits) {
  const ClusterView view = TwoShards(2);
  ShardCluster cluster(SummingJob(), view);
  Contribute(cluster, 2, 1, 1, 0, 10);
  cluster.SetView(WithMemberAt(view, 1, 9));
  CompleteRequest other = cluster.MakeComplete(1, 1, 0, 0.25);
  *other.mutable_header() = HeaderOf(cluster.view(), 9);
  auto parked = cluster.Complete(other);
  EXPECT_FALSE(parked->has_value());
  auto first = Contribute(cluster, 1, 0, 1, 0, 1);
  cluster.Deliver();
  EXPECT_EQ(VerdictOf(first).total_weight(), 2);
  EXPECT_EQ(VerdictOf(parked).step(), 1u);
  EXPECT_EQ(cluster.Values("b", 1), Floats(2, -11));
}

TEST(ShardMembershipTest, LostWhileTheStepClosesItCountsAndTheNextStepIsWithoutIt) {
  JobConfig job = SummingJob();
  job.mutable_optimizer()->set_clip_norm(1e30);
  const ClusterView view = TwoShards(2);
  ShardCluster cluster(job, view);
  Contribute(cluster, 2, 1, 1, 0, 10);
  auto first = Contribute(cluster, 1, 0, 1, 0, 1);
  EXPECT_FALSE(first->has_value());  // shard 1's norms are missing
  const ClusterView smaller = Without(view, 1);
  cluster.SetView(smaller);
  EXPECT_FALSE(first->has_value());
  cluster.Deliver();
  EXPECT_EQ(VerdictOf(first).shares_size(), 2);
  EXPECT_EQ(VerdictOf(first).view_epoch(), 2u);
  EXPECT_EQ(cluster.Values("b", 1), Floats(2, -11));
  auto second = Contribute(cluster, 1, 0, 2, 0, 1);
  cluster.Deliver();
  EXPECT_EQ(VerdictOf(second).shares_size(), 1);
}

TEST(ShardMembershipTest, AStepThatAllHaveLeftIsSkippedAndThoseWhoCameTakeTheNext) {
  const ClusterView view = TwoShards(1);
  ShardCluster cluster(SummingJob(), view);
  ASSERT_EQ(OutcomeOf(cluster.Push(PushOf(cluster, HeaderOf(view, 1), 0, 1, 0, 1, 100))), ADDED);
  cluster.SetView(WithMemberAt(view, 1, 2));
  auto entered = cluster.Enter(HeaderOf(cluster.view(), 2), 1);
  EXPECT_FALSE(entered->has_value());
  cluster.SetView(Without(cluster.view(), 0));
  cluster.Deliver();
  ASSERT_EQ(cluster.reported().size(), 1u);
  EXPECT_EQ(cluster.reported()[0].outcome(), Verdict::SKIP);
  ASSERT_TRUE(entered->has_value());
  EXPECT_EQ((**entered)->step(), 2u);
  Contribute(cluster, 2, 1, 2, 0, 10);
  cluster.Deliver();
  EXPECT_EQ(cluster.shard(1).version(), 2u);
  EXPECT_FALSE(cluster.shard(1).error().has_value());
}

TEST(ShardMembershipTest, AfterTheLastStepWhoLeavesMakesNoVerdict) {
  JobConfig job = SummingJob();
  job.set_steps(1);
  const ClusterView view = TwoShards(2);
  ShardCluster cluster(job, view);
  Contribute(cluster, 1, 0, 1, 0, 1);
  Contribute(cluster, 2, 1, 1, 0, 1);
  cluster.Deliver();
  cluster.SetView(Without(view, 1));
  cluster.SetView(Without(cluster.view(), 0));
  EXPECT_EQ(cluster.reported().size(), 1u);
  EXPECT_TRUE(cluster.leader().TakeOutbox().empty());
}

TEST(ShardMembershipTest, ViewsThatComeBeforeTheStartValuesDecideNothing) {
  const ClusterView view = TwoShards(2);
  ShardCluster cluster(SummingJob(), view, /*start=*/false);
  cluster.SetView(Without(view, 1));
  EXPECT_TRUE(cluster.reported().empty());
  for (uint32_t shard : {0, 1}) {
    SliceStart zeros;
    const std::string bytes = BytesOf({0, 0});
    zeros.values = bytes;
    Replies replies;
    ASSERT_EQ(cluster.shard(shard).StartSlice(shard, zeros, cluster.now(), replies),
              absl::OkStatus());
  }
  EXPECT_EQ(VerdictOf(Contribute(cluster, 1, 0, 1, 0, 1)).shares_size(), 1);
}

// --- The data position
// -----------------------------------------------------------------------------

CompleteRequest WithRange(CompleteRequest request, uint64_t epoch, uint64_t begin, uint64_t end) {
  request.set_data_epoch(epoch);
  SampleRange& range = *request.mutable_share()->add_ranges();
  range.set_begin(begin);
  range.set_end(end);
  request.mutable_share()->set_samples(end - begin);
  return request;
}

ClusterView WithData(ClusterView view) {
  view.set_training_samples(10);
  view.mutable_data_position()->set_epoch(3);
  SampleRange& used = *view.mutable_data_position()->add_used();
  used.set_begin(0);
  used.set_end(2);
  return view;
}

TEST(ShardMembershipTest, TheDataPositionFollowsTheVerdictsAndIsReportedWithThem) {
  JobConfig job = SummingJob();
  job.mutable_optimizer()->set_skip_nonfinite(true);
  ShardCluster cluster(job, WithData(MakeView({.workers = 2})));
  EXPECT_EQ(cluster.leader().Progress().position().epoch(), 3u);
  for (uint32_t worker : {0, 1}) cluster.PushAll(worker, 1, 0, 1);
  cluster.Complete(WithRange(cluster.MakeComplete(0, 1, 0), 3, 2, 5));
  cluster.Complete(WithRange(cluster.MakeComplete(1, 1, 0), 3, 6, 8));
  JobProgress progress = cluster.leader().Progress();
  EXPECT_EQ(progress.step(), 1u);
  EXPECT_EQ(progress.samples(), 5u);
  EXPECT_EQ(progress.applied(), 1u);
  ASSERT_EQ(progress.position().used_size(), 2);
  EXPECT_EQ(progress.position().used(0).end(), 5u);

  cluster.PushAll(1, 2, 0, 1);
  cluster.SetView(Without(cluster.view(), 1));
  EXPECT_EQ(cluster.leader().Progress().retried(), 1u);
  EXPECT_EQ(cluster.leader().Progress().step(), 1u);
  cluster.PushAll(0, 2, 1, std::numeric_limits<float>::infinity());
  CompleteRequest last = WithRange(cluster.MakeComplete(0, 2, 1), 3, 5, 6);
  last = WithRange(last, 3, 8, 10);
  cluster.Complete(last);
  progress = cluster.leader().Progress();
  EXPECT_EQ(progress.skipped(), 1u);  // its samples are used, too
  EXPECT_EQ(progress.position().epoch(), 4u);
  EXPECT_EQ(progress.position().used_size(), 0);
}

TEST(ShardMembershipTest, WhoGivesSamplesThatItCannotHaveUsedIsRefusedAlone) {
  ShardCluster cluster(SummingJob(), WithData(MakeView({.workers = 2})));
  for (uint32_t worker : {0, 1}) cluster.PushAll(worker, 1, 0, 1);
  const CompleteRequest plain = cluster.MakeComplete(1, 1, 0);
  for (const CompleteRequest& wrong :
       {WithRange(plain, 3, 1, 4), WithRange(plain, 3, 8, 11), WithRange(plain, 2, 4, 8),
        WithRange(plain, 4, 0, 2), WithRange(plain, 3, 5, 5),
        WithRange(WithRange(plain, 3, 4, 6), 3, 5, 8)}) {
    const auto refused = cluster.Complete(wrong);
    ASSERT_TRUE(refused->has_value());
    EXPECT_EQ((*refused)->status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE((*refused)->status().message().find("contributor 1: "), std::string::npos)
        << (*refused)->status();
  }
  EXPECT_FALSE(cluster.leader().error().has_value());
  auto first = cluster.Complete(WithRange(cluster.MakeComplete(0, 1, 0), 3, 2, 4));
  cluster.Complete(WithRange(plain, 3, 4, 8));
  EXPECT_EQ(VerdictOf(first).step(), 1u);
}

// Each of them could be right, and which one is not nobody knows.
TEST(ShardMembershipTest, SamplesThatAreUsedTwiceEndTheJobBeforeTheyAreApplied) {
  ShardCluster cluster(SummingJob(), WithData(MakeView({.workers = 2})));
  for (uint32_t worker : {0, 1}) cluster.PushAll(worker, 1, 0, 1);
  cluster.Complete(WithRange(cluster.MakeComplete(0, 1, 0), 3, 2, 5));
  auto second = cluster.Complete(WithRange(cluster.MakeComplete(1, 1, 0), 3, 4, 8));
  ASSERT_TRUE(cluster.leader().error().has_value());
  EXPECT_EQ(*cluster.leader().error(),
            "step 1 cannot be decided: samples [4, 5) of data epoch 3 are used twice");
  EXPECT_EQ(CodeOf(second), absl::StatusCode::kUnavailable);
  EXPECT_EQ(cluster.leader().version(), 0u);
  EXPECT_TRUE(cluster.reported().empty());
}

}  // namespace
}  // namespace parley::testing
