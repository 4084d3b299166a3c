#include "worker/device/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace parley {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Part = BucketPlan::Part;

TEST(PlanBuckets, NeighboursTravelTogetherAndLargeTensorsAreCut) {
  const BucketPlan plan = PlanBuckets({3, 4, 12, 1}, 10);
  EXPECT_THAT(plan.buckets,
              ElementsAre(ElementsAre(Part{0, 0, 3, 0}, Part{1, 0, 4, 3}, Part{2, 0, 3, 7}),
                          ElementsAre(Part{2, 3, 9, 0}, Part{3, 0, 1, 9})));
  EXPECT_THAT(plan.buckets_of,
              ElementsAre(ElementsAre(0), ElementsAre(0), ElementsAre(0, 1), ElementsAre(1)));
  EXPECT_EQ(plan.largest, 10);
}

TEST(PlanBuckets, TensorsWithoutElementsAreInNone) {
  const BucketPlan plan = PlanBuckets({0, 4, 0}, 100);
  EXPECT_THAT(plan.buckets, ElementsAre(ElementsAre(Part{1, 0, 4, 0})));
  EXPECT_THAT(plan.buckets_of, ElementsAre(IsEmpty(), ElementsAre(0), IsEmpty()));
  EXPECT_EQ(plan.largest, 4);
  EXPECT_EQ(BucketPlan::Size(plan.buckets[0]), 4);
}

TEST(PlanBuckets, TwoPlansOfTheSameTensorsAreOne) {
  const BucketPlan plan = Both(PlanBuckets({0, 3, 0, 4}, 5), PlanBuckets({9, 0, 0, 0}, 6));
  EXPECT_THAT(
      plan.buckets,
      ElementsAre(ElementsAre(Part{1, 0, 3, 0}, Part{3, 0, 2, 3}), ElementsAre(Part{3, 2, 2, 0}),
                  ElementsAre(Part{0, 0, 6, 0}), ElementsAre(Part{0, 6, 3, 0})));
  EXPECT_THAT(plan.buckets_of,
              ElementsAre(ElementsAre(2, 3), ElementsAre(0), IsEmpty(), ElementsAre(0, 1)));
  EXPECT_EQ(plan.largest, 6);
}

TEST(PlanBuckets, OfNothingThereAreNone) { EXPECT_THAT(PlanBuckets({}, 8).buckets, IsEmpty()); }

}  // namespace
}  // namespace parley
