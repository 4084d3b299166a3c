#include "worker/device/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace parley {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PlanBuckets, NeighboursTravelTogetherUntilTheyAreEnough) {
  const BucketPlan plan = PlanBuckets({10, 5, 3, 100, 1, 1}, 14);
  EXPECT_THAT(plan.buckets, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5)));
  EXPECT_THAT(plan.bucket_of, ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_EQ(plan.largest, 103);
}

TEST(PlanBuckets, TensorsWithoutElementsAreInNone) {
  const BucketPlan plan = PlanBuckets({0, 4, 0}, 1);
  EXPECT_THAT(plan.buckets, ElementsAre(ElementsAre(1)));
  EXPECT_THAT(plan.bucket_of, ElementsAre(BucketPlan::kNone, 0, BucketPlan::kNone));
}

TEST(PlanBuckets, OfNothingThereAreNone) { EXPECT_THAT(PlanBuckets({}, 8).buckets, IsEmpty()); }

}  // namespace
}  // namespace parley
