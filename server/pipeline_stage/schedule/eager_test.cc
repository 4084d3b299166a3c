#include "server/pipeline_stage/schedule/eager.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

PipelineCosts Costs(double hop) {
  PipelineCosts costs;
  PartCost part;
  part.forward = part.input_gradient = part.weight_gradient = absl::Milliseconds(10);
  part.activation_bytes = 1000;
  costs.parts.assign(4, part);
  costs.hop = absl::Milliseconds(10) * hop;
  return costs;
}

TEST(ForwardsAhead, AreAsManyAsTheLinksNeedAndNoMore) {
  EXPECT_EQ(*ForwardsAhead(4, 16, Costs(0), 0), 0u);
  EXPECT_EQ(*ForwardsAhead(4, 16, Costs(0.25), 0), 2u);
}

TEST(ForwardsAhead, FitIntoTheMemory) {
  EXPECT_EQ(*ForwardsAhead(4, 16, Costs(0.25), 6000), 2u);
  EXPECT_EQ(*ForwardsAhead(4, 16, Costs(0.25), 5999), 1u);
  EXPECT_EQ(*ForwardsAhead(4, 16, Costs(0.25), 4000), 0u);
  EXPECT_EQ(ForwardsAhead(4, 16, Costs(0.25), 3999).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(ForwardsAhead, BadCostsAreRefused) {
  EXPECT_EQ(ForwardsAhead(3, 16, Costs(0), 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ForwardsAhead(0, 16, Costs(0), 0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace parley
