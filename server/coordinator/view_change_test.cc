#include "server/coordinator/view_change.h"

#include <gtest/gtest.h>

#include <vector>

namespace parley {
namespace {

Member MakeMember(uint64_t id, Role role, uint32_t ordinal) {
  Member member;
  member.set_id(id);
  member.set_role(role);
  member.set_ordinal(ordinal);
  return member;
}

// Shard 0 is member 1; workers 0, 1 and 2 are members 10, 11 and 12.
ClusterView ThreeWorkers() {
  ClusterView view;
  view.set_job_epoch(3);
  view.set_view_epoch(5);
  view.set_first_step(4);
  view.set_total_steps(99);
  *view.add_members() = MakeMember(1, SHARD, 0);
  for (uint32_t i = 0; i < 3; ++i) {
    *view.add_members() = MakeMember(10 + i, WORKER, i);
    Contributor* contributor = view.add_contributors();
    contributor->set_ordinal(i);
    contributor->add_part_members(10 + i);
  }
  return view;
}

std::vector<uint64_t> Members(const ClusterView& view) {
  std::vector<uint64_t> ids;
  for (const Member& member : view.members()) ids.push_back(member.id());
  return ids;
}

TEST(ViewChangeTest, AWorkerThatIsLostLeavesItsOrdinalOrAnEmptyPlace) {
  const ClusterView view = ThreeWorkers();
  EXPECT_TRUE(TakesPart(view, 11));
  EXPECT_FALSE(TakesPart(view, 1));
  for (const bool keep : {false, true}) {
    const ClusterView next = WithoutMember(view, 11, keep, 8);
    EXPECT_EQ(next.view_epoch(), 6u);
    EXPECT_EQ(next.job_epoch(), 3u);
    EXPECT_EQ(next.first_step(), 8u);
    EXPECT_EQ(next.total_steps(), 99u);
    EXPECT_EQ(Members(next), (std::vector<uint64_t>{1, 10, 12}));
    EXPECT_EQ(LiveContributors(next), 2u);
    EXPECT_FALSE(TakesPart(next, 11));
    ASSERT_EQ(next.contributors_size(), keep ? 3 : 2);
    EXPECT_EQ(next.contributors(1).ordinal(), keep ? 1u : 2u);
    EXPECT_EQ(next.contributors(1).part_members(0), keep ? 0u : 12u);
  }
}

TEST(ViewChangeTest, AWorkerThatComesStandsInItsPlaceInTheOrderOfOrdinals) {
  for (const bool keep : {false, true}) {
    const ClusterView view = WithoutMember(ThreeWorkers(), 11, keep, 8);
    const ClusterView next = WithMember(view, MakeMember(13, WORKER, 1), {}, 2);
    EXPECT_EQ(next.view_epoch(), 7u);
    EXPECT_EQ(next.first_step(), 8u) << "never earlier than the view before";
    EXPECT_EQ(Members(next), (std::vector<uint64_t>{1, 10, 13, 12}));
    ASSERT_EQ(next.contributors_size(), 3);
    for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(next.contributors(i).ordinal(), i);
    EXPECT_EQ(next.contributors(1).part_members(0), 13u);
    EXPECT_EQ(LiveContributors(next), 3u);
  }
}

// As ThreeWorkers, with two stages behind each: stage 0 is member 20, the last one member 25.
ClusterView ThreePipelines() {
  ClusterView view = ThreeWorkers();
  for (uint32_t i = 0; i < 6; ++i) {
    *view.add_members() = MakeMember(20 + i, STAGE, i);
    view.mutable_contributors(static_cast<int>(i / 2))->add_part_members(20 + i);
  }
  return view;
}

std::vector<uint64_t> Parts(const Contributor& contributor) {
  return {contributor.part_members().begin(), contributor.part_members().end()};
}

TEST(ViewChangeTest, AStageThatIsLostLeavesItsPartEmpty) {
  const ClusterView view = ThreePipelines();
  EXPECT_EQ(LiveContributors(view), 3u);
  EXPECT_EQ(WorkerOf(view, 23), 11u);
  EXPECT_EQ(WorkerOf(view, 11), 11u);
  EXPECT_EQ(WorkerOf(view, 1), 0u);
  const ClusterView next = WithoutMember(view, 23, /*keep_place=*/true, 8);
  EXPECT_EQ(LiveContributors(next), 2u);
  EXPECT_FALSE(TakesPart(next, 23));
  EXPECT_EQ(Parts(next.contributors(0)), Parts(view.contributors(0)));
  EXPECT_EQ(Parts(next.contributors(1)), (std::vector<uint64_t>{11, 22, 0}));
}

TEST(ViewChangeTest, WhoComesIntoAPipelineTakesItsOwnPartAndTheOthersStay) {
  for (const bool worker : {false, true}) {
    const uint64_t lost = worker ? 11 : 23;
    const ClusterView view = WithoutMember(ThreePipelines(), lost, /*keep_place=*/true, 8);
    const Member member = worker ? MakeMember(30, WORKER, 1) : MakeMember(30, STAGE, 3);
    const ClusterView next = WithMember(view, member, {.stages = 2}, 9);
    ASSERT_EQ(next.contributors_size(), 3);
    EXPECT_EQ(Parts(next.contributors(1)),
              worker ? (std::vector<uint64_t>{30, 22, 23}) : (std::vector<uint64_t>{11, 22, 30}));
    EXPECT_EQ(next.contributors(1).attempt(), 7u);
    EXPECT_EQ(next.contributors(2).attempt(), 0u);
    EXPECT_EQ(Parts(next.contributors(2)), Parts(view.contributors(2)));
    EXPECT_EQ(LiveContributors(next), 3u);
  }
}

TEST(ViewChangeTest, StagesStayWhereTheyStandWhenAllGoBack) {
  const ClusterView view = ThreePipelines();
  const ClusterView next = RolledBack(view, {MakeMember(40, SHARD, 0)}, 4, "/c", 6, {});
  EXPECT_EQ(Members(next), (std::vector<uint64_t>{40, 20, 21, 22, 23, 24, 25, 10, 11, 12}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Parts(next.contributors(i)), Parts(view.contributors(i)));
  }
}

}  // namespace
}  // namespace parley
