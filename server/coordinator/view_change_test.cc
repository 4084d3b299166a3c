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
    const ClusterView next = WithMember(view, MakeMember(13, WORKER, 1), 0, 2);
    EXPECT_EQ(next.view_epoch(), 7u);
    EXPECT_EQ(next.first_step(), 8u) << "never earlier than the view before";
    EXPECT_EQ(Members(next), (std::vector<uint64_t>{1, 10, 13, 12}));
    ASSERT_EQ(next.contributors_size(), 3);
    for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(next.contributors(i).ordinal(), i);
    EXPECT_EQ(next.contributors(1).part_members(0), 13u);
    EXPECT_EQ(LiveContributors(next), 3u);
  }
}

}  // namespace
}  // namespace parley
