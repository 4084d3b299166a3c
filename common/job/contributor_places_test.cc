#include "common/job/contributor_places.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

TEST(ContributorPlacesTest, OfAPipelinePartZeroIsTheWorkerAndTheOthersAreItsStagesInOrder) {
  const ContributorPart worker = PartPlaceOf(WORKER, 2, {.stages = 3});
  EXPECT_EQ(worker.contributor, 2u);
  EXPECT_EQ(worker.part, 0u);
  const ContributorPart stage = PartPlaceOf(STAGE, 7, {.stages = 3});
  EXPECT_EQ(stage.contributor, 2u);
  EXPECT_EQ(stage.part, 2u);
}

TEST(ContributorPlacesTest, OfANodeGroupTheRanksAreWorkersInOrder) {
  const ContributorPart rank = PartPlaceOf(WORKER, 7, {.group = 4});
  EXPECT_EQ(rank.contributor, 1u);
  EXPECT_EQ(rank.part, 3u);
}

TEST(ContributorPlacesTest, EachPlaceLeadsBackToItsMember) {
  for (const uint32_t count : {1, 2, 5}) {
    for (uint32_t ordinal = 0; ordinal < 4 * count; ++ordinal) {
      const ContributorShape pipeline = {.stages = count};
      for (const Role role : {WORKER, STAGE}) {
        EXPECT_EQ(MemberPlaceOf(PartPlaceOf(role, ordinal, pipeline), pipeline),
                  (std::pair(role, ordinal)));
      }
      const ContributorShape group = {.group = count};
      EXPECT_EQ(MemberPlaceOf(PartPlaceOf(WORKER, ordinal, group), group),
                (std::pair(WORKER, ordinal)));
    }
  }
}

TEST(ContributorPlacesTest, AClusterSaysHowManyContributorsItHas) {
  Cluster cluster;
  EXPECT_EQ(ContributorsOf(cluster), 1u);
  cluster.set_workers(8);
  EXPECT_EQ(ContributorsOf(cluster), 8u);
  EXPECT_EQ(ShapeOf(cluster).parts(), 1u);
  cluster.set_group(4);
  EXPECT_EQ(ContributorsOf(cluster), 2u);
  EXPECT_EQ(ShapeOf(cluster).parts(), 4u);
  cluster.set_group(1);
  cluster.set_stages(2);
  EXPECT_EQ(ContributorsOf(cluster), 8u);
  EXPECT_EQ(ShapeOf(cluster).parts(), 3u);
}

}  // namespace
}  // namespace parley
