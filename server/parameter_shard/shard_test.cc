#include "server/parameter_shard/shard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

using Floats = std::vector<float>;

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

const Verdict& VerdictOf(const ShardCluster::CompleteResult& result) {
  static const Verdict none;
  EXPECT_TRUE(result->has_value()) << "not answered";
  if (!result->has_value()) return none;
  EXPECT_EQ((*result)->status(), absl::OkStatus());
  return (*result)->ok() ? (**result)->verdict() : none;
}

absl::StatusCode CodeOf(const ShardCluster::CompleteResult& result) {
  EXPECT_TRUE(result->has_value()) << "not answered";
  return result->has_value() ? (*result)->status().code() : absl::StatusCode::kOk;
}

PushOutcome OutcomeOf(const absl::StatusOr<PushReply>& reply) {
  EXPECT_EQ(reply.status(), absl::OkStatus());
  return reply.ok() ? reply->outcomes(0) : PUSH_OUTCOME_UNSPECIFIED;
}

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

TEST(ShardTest, ARepeatedPushIsADuplicateAndNotAddedAgain) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}));
  const PushRequest push = cluster.MakePush(0, 1, 0, 0, {1, 1, 1, 1});
  EXPECT_EQ(OutcomeOf(cluster.Push(push)), ADDED);
  EXPECT_EQ(OutcomeOf(cluster.Push(push)), DUPLICATE);
  // A duplicate does not stand in for the missing worker.
  EXPECT_FALSE(cluster.Complete(cluster.MakeComplete(0, 1, 0))->has_value());
  EXPECT_FALSE(cluster.Complete(cluster.MakeComplete(0, 1, 0))->has_value());
  cluster.PushAll(1, 1, 0, 1);
  cluster.Complete(cluster.MakeComplete(1, 1, 0));
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -2));
}

TEST(ShardTest, APushOfADecidedStepIsStaleAndOneOfALaterStepMustWait) {
  ShardCluster cluster(SummingJob(), MakeView({}));
  cluster.PushAll(0, 1, 0, 1);
  cluster.Complete(cluster.MakeComplete(0, 1, 0));
  EXPECT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(0, 1, 0, 0, {1, 1, 1, 1}))), STALE);
  auto ahead = cluster.Push(cluster.MakePush(0, 3, 0, 0, {1, 1, 1, 1}));
  EXPECT_TRUE(absl::IsUnavailable(ahead.status())) << ahead.status();
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -1));
}

TEST(ShardTest, ARefusedPushHasNoEffectOnItsOtherSlices) {
  ShardCluster cluster(SummingJob(), MakeView({.tensors = {{"a", 2}, {"b", 2}}}));
  PushRequest push = cluster.MakePush(0, 1, 0, 0, {1, 1});
  *push.add_slices() = cluster.MakePush(0, 1, 0, 1, {1, 1, 1}).slices(0);  // too long
  EXPECT_TRUE(absl::IsInvalidArgument(cluster.Push(push).status()));
  cluster.PushAll(0, 1, 0, 1);  // expects ADDED
}

TEST(ShardTest, WrongSlicesTypesAndPartsAreRefused) {
  ShardCluster cluster(SummingJob(),
                       MakeView({.tensors = {{"a", 2}, {"b", 2}}, .shards = 2, .workers = 2}));
  const auto code = [&](const PushRequest& push) { return cluster.shard(0).Push(push).status(); };
  PushRequest push = cluster.MakePush(0, 1, 0, 0, {1, 1});
  push.mutable_slices(0)->set_slice(77);
  EXPECT_TRUE(absl::IsInvalidArgument(code(push)));
  push.mutable_slices(0)->set_slice(1);  // of shard 1
  EXPECT_TRUE(absl::IsInvalidArgument(code(push)));
  push.mutable_slices(0)->set_slice(0);
  push.mutable_slices(0)->set_dtype(I64);
  EXPECT_TRUE(absl::IsInvalidArgument(code(push)));
  push.mutable_slices(0)->set_dtype(F32);
  push.set_part(1);
  EXPECT_TRUE(absl::IsInvalidArgument(code(push)));
  push.set_part(0);
  push.set_contributor(1);  // another worker's
  EXPECT_TRUE(absl::IsInvalidArgument(code(push)));
  push.set_contributor(9);
  EXPECT_TRUE(absl::IsInvalidArgument(code(push)));
}

TEST(ShardTest, CallsAreFenced) {
  ShardCluster cluster(SummingJob(), MakeView({}));
  const auto code = [&](auto change) {
    PushRequest push = cluster.MakePush(0, 1, 0, 0, {1, 1, 1, 1});
    change(*push.mutable_header());
    return cluster.Push(push).status().code();
  };
  using absl::StatusCode;
  EXPECT_EQ(code([](CallHeader& h) { h.set_job("other"); }), StatusCode::kNotFound);
  EXPECT_EQ(code([](CallHeader& h) { h.set_incarnation(5); }), StatusCode::kAborted);
  EXPECT_EQ(code([](CallHeader& h) { h.set_member(77); }), StatusCode::kAborted);
  EXPECT_EQ(code([](CallHeader& h) { h.set_job_epoch(1); }), StatusCode::kFailedPrecondition);
  EXPECT_EQ(code([](CallHeader& h) { h.set_view_epoch(2); }), StatusCode::kFailedPrecondition);
  EXPECT_EQ(code([](CallHeader&) {}), StatusCode::kOk);
  EXPECT_EQ(cluster.shard(0).counts().pushes_fenced, 4u);
}

TEST(ShardTest, BeforeTheViewCallsAreToBeTriedAgain) {
  Shard shard(SummingJob(), 0);
  PushRequest push;
  push.mutable_header()->set_job("test");
  EXPECT_TRUE(absl::IsUnavailable(shard.Push(push).status()));
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

TEST(ShardTest, OnlyContributor0InitializesAndOnlyOnce) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}), /*start=*/false);
  InitializeRequest request;
  *request.mutable_header() = cluster.worker(1);
  *request.add_slices() = cluster.MakePush(0, 1, 0, 0, {1, 2, 3, 4}).slices(0);
  const auto initialize = [&] {
    Replies replies;
    return cluster.shard(0).Initialize(request, cluster.now(), replies).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(initialize()));
  auto parked = cluster.Pull(1, 0, 0);
  EXPECT_FALSE(parked->has_value());
  EXPECT_TRUE(
      absl::IsUnavailable(cluster.Push(cluster.MakePush(1, 1, 0, 0, {1, 1, 1, 1})).status()));
  *request.mutable_header() = cluster.worker(0);
  EXPECT_EQ(initialize(), absl::OkStatus());
  EXPECT_TRUE(parked->has_value());
  request.mutable_slices(0)->set_data(BytesOf({9, 9, 9, 9}));
  EXPECT_EQ(initialize(), absl::OkStatus());
  EXPECT_EQ(cluster.Values("w", 0), Floats({1, 2, 3, 4}));
}

TEST(ShardTest, AParkedCallThatIsNotAnsweredNamesWhoIsMissingAndSinceWhen) {
  ShardCluster cluster(SummingJob(), MakeView({.shards = 2, .workers = 2}));
  cluster.PushAll(0, 1, 0, 1);
  auto complete = cluster.Complete(cluster.MakeComplete(0, 1, 0), absl::Seconds(10));
  auto pull = cluster.Pull(0, 0, 1, absl::Seconds(5));
  EXPECT_EQ(cluster.leader().NextDeadline(), cluster.now() + absl::Seconds(5));
  cluster.Advance(absl::Seconds(5));
  EXPECT_FALSE(complete->has_value());
  ASSERT_TRUE(pull->has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded((*pull)->status()));
  cluster.Advance(absl::Seconds(5));
  ASSERT_EQ(CodeOf(complete), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(TextOf((*complete)->status()),
            "step 1 is not decided: in step 1 attempt 0 worker 1 at 10.0.1.1:1 (pid 0) did not "
            "complete (since 1970-01-12T13:46:40.000Z, 10.0 s)");
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

TEST(ShardTest, ACompleteWithoutItsPushesFailsTheJob) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}));
  cluster.PushAll(0, 1, 0, 1);
  auto first = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  cluster.Complete(cluster.MakeComplete(1, 1, 0));
  ASSERT_TRUE(cluster.leader().error().has_value());
  EXPECT_EQ(*cluster.leader().error(),
            "step 1 cannot be decided: part 0 of contributor 1 (worker 1 at 10.0.1.1:1 (pid 0)) "
            "for slice w@0:4 counts in this step, but is not here");
  EXPECT_EQ(CodeOf(first), absl::StatusCode::kUnavailable);
  EXPECT_EQ(cluster.leader().version(), 0u);
}

TEST(ShardTest, ALossOnAnotherShardFailsTheJobToo) {
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

TEST(ShardTest, ASliceWithNoneFromAllIsUntouchedAndFromSomeCountsAsZero) {
  JobConfig job = MeanJob();
  job.mutable_optimizer()->mutable_sgd()->set_momentum(0.5);
  ShardCluster cluster(job, MakeView({.tensors = {{"a", 2}, {"b", 2}}, .workers = 2}));
  // Step 1: both push a and b, so that b has momentum.
  for (uint32_t worker : {0, 1}) {
    cluster.PushAll(worker, 1, 0, 4);
    cluster.Complete(cluster.MakeComplete(worker, 1, 0));
  }
  EXPECT_EQ(cluster.Values("b", 1), Floats(2, -4));
  // Step 2: a from one of them only, b from nobody.
  ASSERT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(0, 2, 0, 0, {2, 2}))), ADDED);
  CompleteRequest complete = cluster.MakeComplete(0, 2, 0);
  complete.add_none(1);
  cluster.Complete(complete);
  complete = cluster.MakeComplete(1, 2, 0);
  complete.add_none(0);
  complete.add_none(1);
  const Verdict verdict = VerdictOf(cluster.Complete(complete));
  EXPECT_EQ(verdict.none_size(), 2);
  EXPECT_EQ(cluster.Values("a", 2), Floats(2, -4 - (0.5f * 4 + 1)));
  EXPECT_EQ(cluster.Values("b", 2), Floats(2, -4));  // no momentum step either
  // `none` does not raise the optimizer's own count.
  auto snapshot = cluster.shard(0).Snapshot(2);
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ((*snapshot)[0].optimizer_steps, 2u);
  EXPECT_EQ((*snapshot)[1].optimizer_steps, 1u);
}

TEST(ShardTest, NoneAndAGradientForTheSameSliceContradictEachOther) {
  ShardCluster cluster(SummingJob(), MakeView({}));
  cluster.PushAll(0, 1, 0, 1);
  CompleteRequest complete = cluster.MakeComplete(0, 1, 0);
  complete.add_none(0);
  cluster.Complete(complete);
  EXPECT_TRUE(cluster.leader().error().has_value());
}

TEST(ShardTest, AFrozenParameterStaysAndItsOptimizerDoesNotCount) {
  JobConfig job = SummingJob();
  OptimizerOverride* frozen = job.mutable_optimizer()->add_overrides();
  frozen->set_pattern("a");
  frozen->set_frozen_until_step(2);
  ShardCluster cluster(job, MakeView({.tensors = {{"a", 2}, {"b", 2}}}));
  for (uint64_t step = 1; step <= 3; ++step) {
    cluster.PushAll(0, step, 0, 1);
    cluster.Complete(cluster.MakeComplete(0, step, 0));
  }
  EXPECT_EQ(cluster.Values("a", 3), Floats(2, -1));
  EXPECT_EQ(cluster.Values("b", 3), Floats(2, -3));
  EXPECT_EQ((*cluster.shard(0).Snapshot(3))[0].optimizer_steps, 1u);
}

TEST(ShardTest, ANonFiniteGradientSkipsTheStepOnAllShards) {
  JobConfig job = SummingJob();
  job.mutable_optimizer()->set_skip_nonfinite(true);
  ShardCluster cluster(job, MakeView({.tensors = {{"a", 2}, {"b", 2}}, .shards = 2}));
  ASSERT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(0, 1, 0, 0, {1, 1}))), ADDED);
  const float infinity = std::numeric_limits<float>::infinity();
  ASSERT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(0, 1, 0, 1, {infinity, 1}))), ADDED);
  auto result = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  EXPECT_FALSE(result->has_value());  // shard 1's flag is to come
  cluster.Deliver();
  EXPECT_EQ(VerdictOf(result).outcome(), Verdict::SKIP);
  EXPECT_EQ(cluster.Values("a", 1), Floats(2, 0));
  EXPECT_EQ(cluster.Values("b", 1), Floats(2, 0));
  EXPECT_EQ((*cluster.shard(0).Snapshot(1))[0].optimizer_steps, 0u);
  cluster.PushAll(0, 2, 0, 1);
  cluster.Complete(cluster.MakeComplete(0, 2, 0));
  cluster.Deliver();
  EXPECT_EQ(cluster.Values("a", 2), Floats(2, -1));
}

TEST(ShardTest, TheReducedGradientIsClippedToItsGlobalNorm) {
  JobConfig job = MeanJob();
  job.mutable_optimizer()->set_clip_norm(1);
  ShardCluster cluster(job, MakeView({.tensors = {{"a", 1}, {"b", 1}}, .shards = 2}));
  ASSERT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(0, 1, 0, 0, {3}))), ADDED);
  ASSERT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(0, 1, 0, 1, {4}))), ADDED);
  auto result = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  cluster.Deliver();
  EXPECT_EQ(VerdictOf(result).gradient_norm(), 5);
  EXPECT_EQ(VerdictOf(result).clip_scale(), 1 / (5 + 1e-6));
  const float scale = static_cast<float>(1 / (5 + 1e-6));
  EXPECT_EQ(cluster.Values("a", 1)[0], -(3 * scale));
  EXPECT_EQ(cluster.Values("b", 1)[0], -(4 * scale));
}

TEST(ShardTest, WhatIsClippedIsTheMean) {
  JobConfig job = MeanJob();
  job.mutable_optimizer()->set_clip_norm(100);  // not reached
  ShardCluster cluster(job, MakeView({.workers = 2}));
  for (uint32_t worker : {0, 1}) {
    cluster.PushAll(worker, 1, 0, 2 + 4 * worker);
    cluster.Complete(cluster.MakeComplete(worker, 1, 0));
  }
  EXPECT_EQ(cluster.reported()[0].gradient_norm(), 8);  // of four elements, each 4
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -4));
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

TEST(ShardTest, ABufferIsTakenFromTheLowestContributorWithData) {
  ShardCluster cluster(MeanJob(),
                       MakeView({.tensors = {{"n", 1, true, I64}, {"w", 1}}, .workers = 3}));
  for (uint32_t worker : {2, 1, 0}) {
    CompleteRequest complete = cluster.MakeComplete(worker, 1, 0, worker == 0 ? 0 : 1);
    PushRequest push = cluster.MakePush(worker, 1, 0, 0, {});
    const int64_t value = 100 + worker;
    push.mutable_slices(0)->set_dtype(I64);
    push.mutable_slices(0)->set_data(&value, sizeof(value));
    ASSERT_EQ(OutcomeOf(cluster.Push(push)), ADDED);
    cluster.PushAll(worker, 1, 0, 1);
    cluster.Complete(complete);
  }
  auto pulled = cluster.Pull(0, 0, 1);
  ASSERT_TRUE(pulled->has_value());
  EXPECT_EQ((**pulled)->slices[0].values->as<int64_t>()[0], 101);
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

TEST(ShardTest, AReaderKeepsItsVersionWhileTheNextOneIsMade) {
  ShardCluster cluster(SummingJob(), MakeView({}));
  const auto step = [&](uint64_t number) {
    cluster.PushAll(0, number, 0, 1);
    cluster.Complete(cluster.MakeComplete(0, number, 0));
  };
  auto held = cluster.Pull(0, 0, 0);
  step(1);
  EXPECT_EQ(cluster.Values("w", 0), Floats(4, 0));  // held, so still to be had
  EXPECT_EQ((**held)->slices[0].values->as<float>()[0], 0);
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -1));
  held->reset();
  step(2);
  auto gone = cluster.Pull(0, 0, 0);
  ASSERT_TRUE(gone->has_value());
  EXPECT_TRUE(absl::IsAborted((*gone)->status()));
}

TEST(ShardTest, AVersionBeyondTheLastStepIsRefusedAtOnce) {
  ClusterView view = MakeView({});
  view.set_total_steps(10);
  ShardCluster cluster(SummingJob(), view);
  auto result = cluster.Pull(0, 0, 11);
  ASSERT_TRUE(result->has_value());
  EXPECT_TRUE(absl::IsInvalidArgument((*result)->status()));
}

TEST(ShardTest, TheFirstCauseIsToldToThoseWhoAskAndEverythingElseIsRefused) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}));
  auto parked = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  std::string told;
  WhyFailedRequest ask;
  *ask.mutable_header() = cluster.worker(1);
  FirstCause cause;
  cause.set_text("coordinator at h:1 has not answered");
  {
    Replies replies;
    cluster.leader().WhyFailed(ask, {cluster.now()}, replies,
                               [&](auto reply) { told = reply->cause().text(); });
    cluster.leader().Fail(cause, replies);
  }
  EXPECT_EQ(told, cause.text());
  EXPECT_EQ(CodeOf(parked), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(
      absl::IsUnavailable(cluster.Push(cluster.MakePush(0, 1, 0, 0, {1, 1, 1, 1})).status()));
}

TEST(ShardTest, WhenTheProcessEndsNoCallStaysParked) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}));
  auto complete = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  auto pull = cluster.Pull(0, 0, 1);
  absl::Status told;
  WhyFailedRequest ask;
  *ask.mutable_header() = cluster.worker(1);
  {
    Replies replies;
    cluster.leader().WhyFailed(ask, {cluster.now()}, replies,
                               [&](auto reply) { told = reply.status(); });
    cluster.leader().Stop(replies);
  }
  EXPECT_TRUE(absl::IsUnavailable(told));
  EXPECT_EQ(CodeOf(complete), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::IsUnavailable((*pull)->status()));
  EXPECT_TRUE(absl::IsUnavailable((*cluster.Pull(0, 0, 0))->status()));
}

// --- A contributor is removed half-way ---------------------------------------------------------

ClusterView Without(ClusterView view, uint32_t worker) {
  view.set_view_epoch(view.view_epoch() + 1);
  view.mutable_contributors()->DeleteSubrange(static_cast<int>(worker), 1);
  for (int i = 0; i < view.members_size(); ++i) {
    if (view.members(i).id() == 1 + worker) {
      view.mutable_members()->DeleteSubrange(i, 1);
      break;
    }
  }
  return view;
}

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

TEST(ShardTest, AJoinAbortsNobodysPushAndTheJoinerTakesPartFromItsFirstStep) {
  ClusterView small = MakeView({.workers = 1});
  ShardCluster cluster(SummingJob(), small);
  const PushRequest push = cluster.MakePush(0, 1, 0, 0, {1, 1, 1, 1});
  const CompleteRequest complete = cluster.MakeComplete(0, 1, 0);
  ClusterView large = MakeView({.workers = 2, .view_epoch = 2});
  large.set_first_step(2);
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
  for (Member& member : *view.mutable_members()) {
    if (member.id() == 2) {
      member.set_id(50);
      member.set_incarnation(51);
    }
  }
  view.mutable_contributors(1)->set_part_members(0, 50);
  view.set_view_epoch(2);
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

// --- Parts ---------------------------------------------------------------------------------------

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

}  // namespace
}  // namespace parley::testing
