#include "worker/models/transformer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/loss.h"

namespace parley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Transformer Settings(uint32_t width, uint32_t hidden, uint32_t heads, uint32_t layers,
                     bool tied = false) {
  Transformer settings;
  settings.set_width(width);
  settings.set_hidden(hidden);
  settings.set_heads(heads);
  settings.set_layers(layers);
  settings.set_dropout(0.2);
  settings.set_tied(tied);
  return settings;
}

std::unique_ptr<Network> Make(const Transformer& settings, const SampleLayout& text) {
  JobConfig job;
  job.set_seed(3);
  *job.mutable_model()->mutable_transformer() = settings;
  auto network = MakeNetwork(job, text);
  EXPECT_TRUE(network.ok()) << network.status();
  return *std::move(network);
}

// Without memory for them.
std::vector<NamedTensor> TensorsOf(const Transformer& settings, int64_t tokens) {
  const auto plan = PlanTransformer(settings, {I64, {35}, tokens});
  EXPECT_TRUE(plan.ok()) << plan.status();
  LayerSet tensors(3, LayerSet::Values::kNone);
  for (const LayerPlan& layer : *plan) layer.make(tensors);
  return tensors.tensors();
}

int64_t Parameters(const Transformer& settings, int64_t tokens) {
  int64_t count = 0;
  for (const NamedTensor& named : TensorsOf(settings, tokens)) count += named.tensor.numel();
  return count;
}

// WikiText-2 has so many tokens as torchtext's basic_english cuts it.
constexpr int64_t kWikiText2 = 28'782;

TEST(TransformerTest, HasTheCoursesParameters) {
  EXPECT_EQ(Parameters(Settings(1024, 1024, 4, 3), kWikiText2), 77'879'406);
  EXPECT_EQ(Parameters(Settings(4096, 4096, 16, 12), kWikiText2), 1'444'261'998);
  EXPECT_EQ(Parameters(Settings(1024, 1024, 4, 3, /*tied=*/true), kWikiText2),
            77'879'406 - kWikiText2 * 1024);
}

TEST(TransformerTest, NamesAreThoseOfPyTorchsTutorial) {
  std::vector<std::string> names;
  for (const NamedTensor& named : TensorsOf(Settings(8, 6, 2, 1), 11)) names.push_back(named.name);
  const std::string layer = "transformer_encoder.layers.0.";
  EXPECT_THAT(names,
              ElementsAre("encoder.weight", layer + "self_attn.in_proj_weight",
                          layer + "self_attn.in_proj_bias", layer + "self_attn.out_proj.weight",
                          layer + "self_attn.out_proj.bias", layer + "linear1.weight",
                          layer + "linear1.bias", layer + "linear2.weight", layer + "linear2.bias",
                          layer + "norm1.weight", layer + "norm1.bias", layer + "norm2.weight",
                          layer + "norm2.bias", "decoder.weight", "decoder.bias"));
}

TEST(TransformerTest, TiedTheDecoderUsesTheEmbeddingsTensor) {
  const auto plan = PlanTransformer(Settings(8, 6, 2, 1, /*tied=*/true), {I64, {5}, 11});
  ASSERT_TRUE(plan.ok());
  LayerSet tensors(3);
  const NetworkLayer encoder = plan->front().make(tensors);
  const NetworkLayer decoder = plan->back().make(tensors);
  ASSERT_EQ(decoder.tensors.size(), 2);
  EXPECT_EQ(decoder.tensors[0].name, "encoder.weight");
  EXPECT_TRUE(decoder.tensors[0].tensor.is_same(encoder.tensors[0].tensor));
  EXPECT_EQ(decoder.tensors[1].name, "decoder.bias");
}

TEST(TransformerTest, TheFirstLayerAddsSinesAndCosinesToTheScaledEmbedding) {
  constexpr int64_t kWidth = 6;
  const auto plan = PlanTransformer(Settings(kWidth, 6, 2, 1), {I64, {4}, 11});
  ASSERT_TRUE(plan.ok());
  LayerSet tensors(3);
  const NetworkLayer encoder = plan->front().make(tensors);
  const at::Tensor outputs = encoder.forward(at::arange(4).add(7).unsqueeze(0), false);
  ASSERT_EQ(outputs.sizes(), at::IntArrayRef({1, 4, kWidth}));
  for (int64_t place = 0; place < 4; ++place) {
    for (int64_t column = 0; column < kWidth; ++column) {
      const auto pair = static_cast<double>(column / 2 * 2);
      const double angle = static_cast<double>(place) / std::pow(10000.0, pair / kWidth);
      const double embedded = encoder.tensors[0].tensor[7 + place][column].item().toDouble();
      EXPECT_NEAR(outputs[0][place][column].item().toDouble(),
                  embedded * std::sqrt(6.0) + (column % 2 == 0 ? std::sin(angle) : std::cos(angle)),
                  1e-6)
          << place << " " << column;
    }
  }
}

TEST(TransformerTest, ATokenIsSeenByItselfAndThoseAfterIt) {
  const auto network = Make(Settings(8, 6, 2, 2), {I64, {6}, 11});
  network->SetTraining(false);
  const at::Tensor x = at::arange(6).unsqueeze(0);
  const at::Tensor before = network->Forward(x);
  const at::Tensor changed = x.clone();
  changed[0][3] = 9;
  const at::Tensor after = network->Forward(changed);
  for (int64_t place = 0; place < 6; ++place) {
    EXPECT_EQ(at::allclose(before.select(2, place), after.select(2, place), 0, 1e-6), place < 3)
        << place;
  }
}

TEST(TransformerTest, OutputsAreLogitsAsTheLossTakesThem) {
  const auto network = Make(Settings(8, 6, 2, 2), {I64, {6}, 11});
  const at::Tensor x = at::arange(12).remainder(11).reshape({2, 6});
  const at::Tensor outputs = network->Forward(x);
  EXPECT_EQ(outputs.sizes(), at::IntArrayRef({2, 11, 6}));
  EXPECT_NEAR(ComputeLoss(CROSS_ENTROPY, outputs, x).item().toDouble(), std::log(11), 1);
  Evaluation evaluation;
  AddToEvaluation(CROSS_ENTROPY, outputs, x, evaluation);
  EXPECT_EQ(evaluation.samples(), 2);
  EXPECT_NEAR(evaluation.loss_sum(), 2 * std::log(11), 2);
}

TEST(TransformerTest, DropoutIsOfTheTrainingAndFollowsFromTheSeed) {
  const auto network = Make(Settings(8, 6, 2, 2), {I64, {6}, 11});
  const at::Tensor x = at::arange(6).unsqueeze(0);
  network->Seed(1);
  const at::Tensor first = network->Forward(x);
  network->Seed(2);
  EXPECT_FALSE(at::equal(network->Forward(x), first));
  network->Seed(1);
  EXPECT_TRUE(at::equal(network->Forward(x), first));
  network->SetTraining(false);
  const at::Tensor evaluated = network->Forward(x);
  network->Seed(2);
  EXPECT_TRUE(at::equal(network->Forward(x), evaluated));
}

TEST(TransformerTest, RefusesSamplesThatAreNoTextAndShapesThatDoNotDivide) {
  const auto refusal = [](const Transformer& settings, const SampleLayout& text) {
    const absl::Status status = PlanTransformer(settings, text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const Transformer right = Settings(8, 6, 2, 1);
  EXPECT_THAT(refusal(right, {F32, {3, 8, 8}}), HasSubstr("as data.text gives them"));
  EXPECT_THAT(refusal(right, {I64, {35}}), HasSubstr("of 0 tokens"));
  EXPECT_THAT(refusal(right, {I64, {}, 9}), HasSubstr("I64 []"));
  EXPECT_THAT(refusal(Settings(8, 6, 3, 1), {I64, {5}, 9}), HasSubstr("heads 3"));
  EXPECT_THAT(refusal(Settings(9, 6, 3, 1), {I64, {5}, 9}), HasSubstr("width 9"));
  EXPECT_THAT(refusal(Settings(8, 6, 0, 1), {I64, {5}, 9}), HasSubstr("heads 0"));
}

}  // namespace
}  // namespace parley
