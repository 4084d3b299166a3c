// Contributors that are node groups: workers that each send the group's sums of some slices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

constexpr uint32_t kGroup = 2;
constexpr uint32_t kGroups = 2;

// Slice 0 is rank 0's, 1 is rank 1's, 2 (a buffer) is rank 0's.
uint32_t RankOf(uint32_t slice) { return slice == 1 ? 1 : 0; }

ClusterView GroupView(uint32_t shards) {
  ClusterView view = MakeView({.tensors = {{"first", 2}, {"last", 2}, {"seen", 2, /*buffer=*/true}},
                               .shards = shards,
                               .workers = kGroups * kGroup});
  view.clear_contributors();
  for (uint32_t group = 0; group < kGroups; ++group) {
    Contributor& contributor = *view.add_contributors();
    contributor.set_ordinal(group);
    contributor.set_attempt(1);
    for (uint32_t rank = 0; rank < kGroup; ++rank) {
      contributor.add_part_members(1 + group * kGroup + rank);
    }
  }
  for (Slice& slice : *view.mutable_slices()) {
    for (uint32_t group = 0; group < kGroups; ++group) {
      SlicePart& part = *slice.add_parts();
      part.set_contributor(group);
      part.set_part(RankOf(slice.id()));
      part.set_end(2);
    }
  }
  return view;
}

JobConfig GroupJob() {
  JobConfig job = MeanJob();
  job.mutable_cluster()->set_workers(kGroups * kGroup);
  job.mutable_cluster()->set_group(kGroup);
  return job;
}

// The next view: a rank has become this member, or nobody where it is 0.
ClusterView WithRank(ClusterView view, uint32_t group, uint32_t rank, uint64_t member) {
  const uint32_t worker = group * kGroup + rank;
  const auto contributors = view.contributors();
  view = member == 0 ? Without(std::move(view), worker)
                     : WithMemberAt(std::move(view), worker, member);
  *view.mutable_contributors() = contributors;
  Contributor& found = *view.mutable_contributors(static_cast<int>(group));
  found.set_part_members(static_cast<int>(rank), member);
  found.set_attempt(static_cast<uint32_t>(view.view_epoch()));
  return view;
}

class NodeGroups : public ::testing::TestWithParam<uint32_t> {
 protected:
  explicit NodeGroups(bool start = true) : cluster_(GroupJob(), GroupView(GetParam()), start) {}

  const Contributor& GroupOf(uint32_t group) {
    return cluster_.view().contributors(static_cast<int>(group));
  }
  CallHeader Header(uint32_t group, uint32_t rank) {
    return HeaderOf(cluster_.view(), GroupOf(group).part_members(static_cast<int>(rank)));
  }

  absl::StatusOr<PushReply> Push(uint32_t group, uint32_t rank, uint32_t attempt, uint32_t slice,
                                 float value) {
    PushRequest push = cluster_.MakePush(0, 1, attempt, slice, Floats(2, value));
    *push.mutable_header() = Header(group, rank);
    push.set_contributor(group);
    push.set_part(rank);
    push.set_composition(GroupOf(group).attempt());
    return cluster_.Push(push);
  }

  ShardCluster::CompleteResult Complete(uint32_t group, uint32_t rank, uint32_t attempt,
                                        double weight = 0, std::vector<uint32_t> none = {}) {
    CompleteRequest complete = cluster_.MakeComplete(0, 1, attempt, weight);
    *complete.mutable_header() = Header(group, rank);
    complete.mutable_share()->set_contributor(group);
    complete.mutable_share()->set_loss_sum(1 + rank);
    complete.set_part(rank);
    complete.set_composition(GroupOf(group).attempt());
    complete.mutable_none()->Add(none.begin(), none.end());
    return cluster_.Complete(complete);
  }

  // All ranks of a group; weight of the group.
  ShardCluster::CompleteResult Do(uint32_t group, uint32_t attempt, float value, double weight) {
    for (uint32_t slice = 0; slice < 3; ++slice) {
      EXPECT_EQ(OutcomeOf(Push(group, RankOf(slice), attempt, slice, value + slice)), ADDED);
    }
    Complete(group, 1, attempt);
    return Complete(group, 0, attempt, weight);
  }

  ShardCluster cluster_;
};

TEST_P(NodeGroups, AStepIsTheSumOfTheGroupsSumsDividedByTheirWeights) {
  Do(0, 0, 10, 2);
  auto last = Do(1, 0, 20, 1.5);
  cluster_.Deliver();
  const Verdict& verdict = VerdictOf(last);
  EXPECT_EQ(verdict.outcome(), Verdict::APPLY);
  EXPECT_EQ(verdict.total_weight(), 3.5);
  ASSERT_EQ(verdict.shares_size(), 2);
  EXPECT_EQ(verdict.shares(0).loss_sum(), 1. + 2) << "of all ranks";
  EXPECT_EQ(cluster_.Values("first", 1), Floats(2, -(10.f + 20) / 3.5f));
  EXPECT_EQ(cluster_.Values("last", 1), Floats(2, -(11.f + 21) / 3.5f));
  EXPECT_EQ(cluster_.Values("seen", 1), Floats(2, 12));
}

TEST_P(NodeGroups, TheStepWaitsForEachRank) {
  Do(0, 0, 10, 2);
  for (uint32_t slice = 0; slice < 3; ++slice) Push(1, RankOf(slice), 0, slice, 1).IgnoreError();
  auto first = Complete(1, 0, 0, 1);
  cluster_.Deliver();
  EXPECT_FALSE(first->has_value());
  std::vector<std::pair<Role, uint32_t>> waited_for;
  for (const Wait& wait : cluster_.leader().Waits(cluster_.now())) {
    for (const WaitedFor& on : wait.on()) waited_for.emplace_back(on.role(), on.ordinal());
  }
  EXPECT_EQ(waited_for, (std::vector<std::pair<Role, uint32_t>>{{WORKER, 3}}));
  Complete(1, 1, 0);
  cluster_.Deliver();
  EXPECT_EQ(VerdictOf(first).outcome(), Verdict::APPLY);
}

TEST_P(NodeGroups, ARankSendsNothingOfAnothers) {
  EXPECT_TRUE(absl::IsInvalidArgument(Push(0, 1, 0, 0, 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Push(1, 0, 0, 1, 1).status()));
}

TEST_P(NodeGroups, ASliceOfWhichNoRankHasAGradientIsLeftAsItIs) {
  for (const uint32_t group : {0, 1}) {
    Push(group, 0, 0, 0, 4).IgnoreError();
    Push(group, 0, 0, 2, 4).IgnoreError();
    Complete(group, 1, 0, 0, {1});
  }
  Complete(0, 0, 0, 1);
  auto last = Complete(1, 0, 0, 1);
  cluster_.Deliver();
  EXPECT_EQ(VerdictOf(last).outcome(), Verdict::APPLY);
  EXPECT_EQ(cluster_.Values("first", 1), Floats(2, -4));
  EXPECT_EQ(cluster_.Values("last", 1), Floats(2, 0));
}

TEST_P(NodeGroups, WhatTheOthersHaveSentWithALostRankCountsNoMore) {
  auto other = Do(1, 0, 20, 1);
  for (const uint32_t slice : {0, 2}) {
    EXPECT_EQ(OutcomeOf(Push(0, 0, 0, slice, 100)), ADDED);
  }
  auto first = Complete(0, 0, 0, 1);
  cluster_.SetView(WithRank(cluster_.view(), 0, 1, 0));
  cluster_.Deliver();
  EXPECT_TRUE(absl::IsAborted((*first)->status()));
  EXPECT_EQ(VerdictOf(other).outcome(), Verdict::RETRY);
  cluster_.SetView(WithRank(cluster_.view(), 0, 1, 90));
  cluster_.Deliver();
  const uint32_t attempt = cluster_.leader().attempt();
  PushRequest late = cluster_.MakePush(0, 1, attempt, 0, Floats(2, 100));
  *late.mutable_header() = Header(0, 0);
  late.set_composition(1);
  EXPECT_TRUE(absl::IsAborted(cluster_.Push(late).status())) << "of the earlier composition";
  Do(1, attempt, 20, 1);
  auto last = Do(0, attempt, 10, 1);
  cluster_.Deliver();
  EXPECT_EQ(VerdictOf(last).outcome(), Verdict::APPLY);
  EXPECT_EQ(cluster_.Values("first", 1), Floats(2, -15));
}

INSTANTIATE_TEST_SUITE_P(Shards, NodeGroups, ::testing::Values(1, 2));

// Before there are values.
class NodeGroupsAtTheStart : public NodeGroups {
 protected:
  NodeGroupsAtTheStart() : NodeGroups(/*start=*/false) {}
};

TEST_P(NodeGroupsAtTheStart, RankZeroIsWaitedFor) {
  std::vector<std::pair<Role, uint32_t>> waited_for;
  for (const Wait& wait : cluster_.leader().Waits(cluster_.now())) {
    for (const WaitedFor& on : wait.on()) waited_for.emplace_back(on.role(), on.ordinal());
  }
  EXPECT_EQ(waited_for, (std::vector<std::pair<Role, uint32_t>>{{WORKER, 0}}));
}

INSTANTIATE_TEST_SUITE_P(Shards, NodeGroupsAtTheStart, ::testing::Values(1));

}  // namespace
}  // namespace parley::testing
