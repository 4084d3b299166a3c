#include "worker/models/layer_profile.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/job.pb.h"

namespace parley {
namespace {

std::vector<LayerPlan> PlanOf(const std::string& model, const SampleLayout& x) {
  JobConfig job;
  job.set_seed(7);
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(model, job.mutable_model()));
  return *PlanLayers(job, x);
}

TEST(LayerProfileTest, ALayerTakesWhatItSleeps) {
  const auto plan = PlanOf(
      "sleeping { layers: 2 forward_seconds: 0.02 input_gradient_seconds: 0.03 "
      "weight_gradient_seconds: 0.01 }",
      {F32, {4}});
  const auto costs = ProfileLayers(plan, {F32, {4}}, 5, absl::ZeroDuration());
  ASSERT_TRUE(costs.ok()) << costs.status();
  ASSERT_EQ(costs->size(), 2U);
  for (const LayerCost& cost : *costs) {
    EXPECT_GE(cost.forward, absl::Milliseconds(20));
    EXPECT_GE(cost.backward, absl::Milliseconds(40));
    EXPECT_EQ(cost.output_bytes, 5 * 4 * sizeof(float));
  }
  EXPECT_EQ(costs->at(1).name, "sleeping.1");
}

TEST(LayerProfileTest, WhatASkipConnectionBringsAlongIsCounted) {
  const SampleLayout text = {I64, {6}, 11};
  const auto costs = ProfileLayers(
      PlanOf("transformer { width: 8 heads: 2 hidden: 6 layers: 2 skips: true }", text), text, 3,
      absl::ZeroDuration());
  ASSERT_TRUE(costs.ok()) << costs.status();
  ASSERT_EQ(costs->size(), 4U);
  constexpr uint64_t kOne = 3 * 6 * 8 * sizeof(float);
  EXPECT_EQ(costs->at(0).output_bytes, kOne);
  EXPECT_EQ(costs->at(1).output_bytes, 2 * kOne);
  EXPECT_EQ(costs->at(2).output_bytes, kOne);
}

TEST(LayerProfileTest, WhatALayerKeepsForItsBackwardIsCounted) {
  // Of 3 images of 28x28: 50 and 100 channels of 24x24 and 8x8 that the convolutions give, as many
  // behind their ReLUs, what is left of them after pooling, and the places of the maxima (int64).
  const auto costs = ProfileLayers(PlanOf("simple_cnn { classes: 4 }", {F32, {1, 28, 28}}),
                                   {F32, {1, 28, 28}}, 3, absl::ZeroDuration());
  ASSERT_TRUE(costs.ok()) << costs.status();
  for (const LayerCost& cost : *costs) {
    EXPECT_GE(cost.kept_bytes, cost.output_bytes) << cost.name;
    EXPECT_LE(cost.kept_bytes, 3 * 2 * 50 * 24 * 24 * sizeof(float) + 3 * 50 * 12 * 12 * 12)
        << cost.name;
  }
}

TEST(LayerProfileTest, WhatDoesNotFitIsAnError) {
  const auto costs = ProfileLayers(PlanOf("simple_cnn { classes: 4 }", {F32, {1, 28, 28}}),
                                   {F32, {1, 9, 28}}, 3, absl::ZeroDuration());
  EXPECT_TRUE(absl::IsInvalidArgument(costs.status())) << costs.status();
}

}  // namespace
}  // namespace parley
