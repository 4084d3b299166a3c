#include "worker/owned_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace parley {
namespace {

using ::testing::ElementsAre;

TEST(OwnedParts, ABucketIsCutWhereOwnersChange) {
  // Tensor 0: 10 values, of rank 1 and 0; tensor 1: 4 of rank 1, of which the bucket has the last.
  const std::vector<std::vector<Reducer::Range>> ranges = {{{0, 24, 1}, {24, 16, 0}}, {{0, 16, 1}}};
  const std::vector<BucketPlan::Part> bucket = {{0, 2, 8, 0}, {1, 3, 1, 8}};
  EXPECT_THAT(
      PartsByOwner(bucket, ranges),
      ElementsAre(OwnedPart{0, 2, 4, 0, 1}, OwnedPart{0, 6, 4, 4, 0}, OwnedPart{1, 3, 1, 8, 1}));
}

TEST(OwnedParts, WhatNobodyOwnsIsNotThere) {
  const std::vector<std::vector<Reducer::Range>> ranges = {{}, {{0, 8, 0}}};
  EXPECT_THAT(PartsByOwner({{0, 0, 5, 0}, {1, 0, 2, 5}}, ranges),
              ElementsAre(OwnedPart{1, 0, 2, 5, 0}));
}

}  // namespace
}  // namespace parley
