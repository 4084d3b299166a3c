#include "worker/models/network.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <cmath>
#include <fstream>

namespace parley {
namespace {

using ::testing::HasSubstr;

JobConfig CnnJob(uint64_t seed = 7) {
  JobConfig job;
  job.set_seed(seed);
  job.mutable_model()->mutable_simple_cnn()->set_classes(10);
  return job;
}

int64_t Parameters(const Network& network) {
  int64_t count = 0;
  for (const NamedTensor& named : network.Tensors()) count += named.tensor.numel();
  return count;
}

TEST(SimpleCnnTest, HasTheCoursesParametersNamesAndShapes) {
  const auto grey = MakeNetwork(CnnJob(), {F32, {1, 28, 28}});
  ASSERT_TRUE(grey.ok()) << grey.status();
  EXPECT_EQ(Parameters(**grey), 155'685);
  EXPECT_EQ((*grey)->Forward(at::ones({3, 1, 28, 28})).sizes(), at::IntArrayRef({3, 10}));
  const auto colour = MakeNetwork(CnnJob(), {F32, {3, 32, 32}});
  ASSERT_TRUE(colour.ok());
  EXPECT_EQ(Parameters(**colour), 191'935);
  const std::vector<NamedTensor> tensors = (*colour)->Tensors();
  EXPECT_EQ(tensors[0].name, "conv1.weight");
  EXPECT_EQ(tensors[0].tensor.sizes(), at::IntArrayRef({50, 3, 5, 5}));
  EXPECT_EQ(tensors[4].name, "fc1.weight");
  EXPECT_EQ(tensors[4].tensor.sizes(), at::IntArrayRef({50, 1875}));
}

TEST(SimpleCnnTest, InitialValuesFollowFromSeedAndNameWithPyTorchsDistribution) {
  const SampleLayout image{F32, {1, 28, 28}};
  const auto a = (*MakeNetwork(CnnJob(1), image))->Tensors();
  const auto b = (*MakeNetwork(CnnJob(1), image))->Tensors();
  const auto c = (*MakeNetwork(CnnJob(2), image))->Tensors();
  const std::vector<double> fan_in = {25, 25, 1250, 1250, 1200, 1200, 50, 50};
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::equal(a[i].tensor, b[i].tensor)) << a[i].name;
    EXPECT_FALSE(at::equal(a[i].tensor, c[i].tensor)) << a[i].name;
    const double bound = 1 / std::sqrt(fan_in[i]);
    const double largest = a[i].tensor.abs().max().item().toDouble();
    EXPECT_LE(largest, bound) << a[i].name;
    EXPECT_GE(largest, 0.6 * bound) << a[i].name;
    EXPECT_TRUE(a[i].tensor.requires_grad());
  }
  // conv1.weight and fc2.weight do not begin alike: each has a generator of its own.
  EXPECT_NE(a[0].tensor.flatten()[0].item().toDouble() / 0.2,
            a[6].tensor.flatten()[0].item().toDouble() * std::sqrt(50));
}

TEST(SimpleCnnTest, RefusesSamplesThatAreNoImages) {
  for (const SampleLayout& layout :
       {SampleLayout{F32, {10}}, SampleLayout{F32, {1, 8, 28}}, SampleLayout{I64, {1, 28, 28}}}) {
    EXPECT_EQ(MakeNetwork(CnnJob(), layout).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

// models_test compares what they compute with torchvision.
TEST(ResNetTest, TrainingMovesTheRunningStatisticsAndEvaluationDoesNot) {
  JobConfig job;
  job.mutable_model()->mutable_resnet()->set_depth(18);
  job.mutable_model()->mutable_resnet()->set_classes(4);
  const auto network = MakeNetwork(job, {F32, {1, 16, 16}});
  ASSERT_TRUE(network.ok()) << network.status();
  const auto statistics = [&] {
    std::vector<at::Tensor> values;
    for (const NamedTensor& named : (*network)->Tensors()) {
      if (named.buffer) values.push_back(named.tensor.clone());
    }
    return values;
  };
  const at::Tensor x = at::arange(2 * 16 * 16, at::kFloat).reshape({2, 1, 16, 16}).sin();
  const std::vector<at::Tensor> first = statistics();
  ASSERT_EQ(first.size(), 3 * 20);
  (*network)->SetTraining(false);
  EXPECT_EQ((*network)->Forward(x).sizes(), at::IntArrayRef({2, 4}));
  std::vector<at::Tensor> after = statistics();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], after[i])) << i;
  (*network)->SetTraining(true);
  (*network)->Forward(x).sum().backward();
  after = statistics();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_FALSE(at::equal(first[i], after[i])) << i;
  for (const NamedTensor& named : (*network)->Tensors()) {
    EXPECT_EQ(named.tensor.grad().defined(), !named.buffer) << named.name;
  }
}

TEST(ImageNetworksTest, RefuseWhatTheyCannotTake) {
  const auto refusal = [](auto set, const SampleLayout& image) {
    JobConfig job;
    set(*job.mutable_model());
    const absl::Status status = MakeNetwork(job, image).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const auto vgg = [](Model& model) { model.mutable_vgg19()->set_classes(10); };
  EXPECT_THAT(refusal(vgg, {F32, {3, 28, 28}}), HasSubstr("at least 32x32"));
  const auto xresnet = [](Model& model) { model.mutable_xresnet50()->set_classes(10); };
  EXPECT_THAT(refusal(xresnet, {I64, {3, 64, 64}}), HasSubstr("samples of I64 [3, 64, 64]"));
  const auto depth = [](Model& model) { model.mutable_resnet()->set_depth(20); };
  EXPECT_THAT(refusal(depth, {F32, {3, 32, 32}}), HasSubstr("18, 34 or 50, not 20"));
  const auto none = [](Model& model) { model.mutable_resnet()->set_depth(50); };
  EXPECT_THAT(refusal(none, {F32, {3, 32, 32}}), HasSubstr("classes must be at least 1"));
}

TEST(TorchScriptTest, LoadsAModuleWithItsValuesAndSwitchesItsTraining) {
  const std::string path = ::testing::TempDir() + "/module.pt";
  torch::jit::Module module("m");
  module.register_parameter("w", at::full({2}, 3.0), /*is_buffer=*/false);
  module.register_attribute("training", c10::BoolType::get(), true);
  module.define("def forward(self, x):\n  return self.w * x if self.training else x\n");
  module.save(path);
  JobConfig job;
  job.mutable_model()->set_torchscript(path);
  const auto network = MakeNetwork(job, {F32, {2}});
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_TRUE(at::equal((*network)->Forward(at::ones({2})), at::full({2}, 3.0)));
  (*network)->SetTraining(false);
  EXPECT_TRUE(at::equal((*network)->Forward(at::ones({2})), at::ones({2})));
  ASSERT_EQ((*network)->Tensors().size(), 1);
  EXPECT_EQ((*network)->Tensors()[0].name, "w");
}

TEST(TorchScriptTest, MissingAndForeignFilesAreClearErrors) {
  JobConfig job;
  job.mutable_model()->set_torchscript("/nonexistent/net.pt");
  const absl::Status missing = MakeNetwork(job, {}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/nonexistent/net.pt"));

  const std::string path = ::testing::TempDir() + "/foreign.pt";
  std::ofstream(path) << "no module";
  job.mutable_model()->set_torchscript(path);
  const absl::Status foreign = MakeNetwork(job, {}).status();
  EXPECT_EQ(foreign.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(foreign.message()), HasSubstr(path));
}

}  // namespace
}  // namespace parley
