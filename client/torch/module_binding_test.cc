#include "client/torch/module_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>

#include "client/torch/testing/fake_session.h"

namespace parley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Two layers with a batch normalisation between them, one parameter that nothing uses, one frozen.
struct Network : torch::nn::Module {
  Network() {
    first = register_module("first", torch::nn::Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    second = register_module("second", torch::nn::Linear(4, 1));
    unused = register_parameter("unused", torch::ones({2}));
    frozen = register_parameter("frozen", torch::full({1}, 3.0), /*requires_grad=*/false);
  }
  torch::Tensor Forward(const torch::Tensor& x) {
    return second(torch::relu(norm(first(x)))) + frozen;
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor unused, frozen;
};

StepPlan Plan(uint64_t step) {
  StepPlan plan;
  plan.step = step;
  plan.samples = {0, 1, 2, 3};
  plan.weight = 1;
  return plan;
}

TEST(ModuleBindingTest, RegistersParametersAndBuffersByPyTorchsNames) {
  Network network;
  const auto binding = ModuleBinding::Create(network);
  ASSERT_TRUE(binding.ok()) << binding.status();
  std::vector<std::string> names;
  for (const TensorSpec& spec : (*binding)->specs()) {
    names.push_back(spec.name() + (spec.buffer() ? " buffer " : " ") + DataType_Name(spec.dtype()));
  }
  EXPECT_THAT(
      names, ElementsAre("unused F32", "frozen F32", "first.weight F32", "first.bias F32",
                         "norm.weight F32", "norm.bias F32", "second.weight F32", "second.bias F32",
                         "norm.running_mean buffer F32", "norm.running_var buffer F32",
                         "norm.num_batches_tracked buffer I64"));
}

TEST(ModuleBindingTest, TrainsAsAPlainLoopDoesAndPushesNothingForAnUnusedParameter) {
  torch::manual_seed(1);
  Network network;
  Network plain;
  {
    const torch::NoGradGuard no_grad;
    for (const auto& item : plain.named_parameters())
      item.value().copy_(network.named_parameters()[item.key()]);
  }
  FakeSession session({Plan(1), Plan(2), Plan(3)}, 0.1);
  const auto binding = ModuleBinding::Create(network);
  ASSERT_TRUE(binding.ok());
  ASSERT_TRUE((*binding)->Attach(session, 4, 0).ok());
  const torch::Tensor x = torch::randn({4, 3});
  while (const auto plan = session.NextStep()) {
    ASSERT_TRUE((*binding)->Backward(network.Forward(x).square().mean()).ok());
    EXPECT_FALSE(network.first->weight.grad().defined());
    ASSERT_TRUE((*binding)->Complete(1).ok());
    ASSERT_TRUE((*binding)->Pull().ok());

    plain.zero_grad();
    plain.Forward(x).square().mean().backward();
    const torch::NoGradGuard no_grad;
    for (auto& parameter : plain.parameters()) {
      if (parameter.grad().defined()) parameter.sub_(0.1F * parameter.grad());
    }
  }
  // Sent while backward went on: last layer first.
  const auto pushed = session.PushedNames();
  EXPECT_EQ(pushed.size(), 9);
  EXPECT_THAT(pushed[0], HasSubstr("second."));
  for (const std::string& name : pushed) {
    EXPECT_NE(name, "unused");
    EXPECT_NE(name, "frozen");
  }
  for (const auto& item : plain.named_parameters()) {
    EXPECT_TRUE(torch::allclose(item.value(), network.named_parameters()[item.key()], 0, 1e-6))
        << item.key();
  }
  for (const auto& item : plain.named_buffers()) {
    EXPECT_TRUE(torch::equal(item.value(), network.named_buffers()[item.key()])) << item.key();
  }
  EXPECT_EQ(network.norm->num_batches_tracked.item<int64_t>(), 3);
}

TEST(ModuleBindingTest, WhatIsFrozenHasNoGradientUntilItIsNot) {
  torch::manual_seed(4);
  Network network;
  FakeSession session({Plan(1), Plan(2), Plan(3)}, 0.1);
  {
    const auto binding = ModuleBinding::Create(network);
    ASSERT_TRUE(binding.ok());
    ASSERT_TRUE((*binding)->Attach(session, 4, 0).ok());
    const torch::Tensor x = torch::randn({4, 3});
    const auto step = [&] {
      ASSERT_TRUE(session.NextStep().has_value());
      ASSERT_TRUE((*binding)->Backward(network.Forward(x).square().mean()).ok());
      ASSERT_TRUE((*binding)->Complete(1).ok());
      ASSERT_TRUE((*binding)->Pull().ok());
    };
    const auto pushed = [&](const std::string& name) {
      const auto names = session.PushedNames();
      return std::count(names.begin(), names.end(), name);
    };
    step();
    EXPECT_EQ(pushed("frozen"), 0);
    EXPECT_EQ(pushed("first.weight"), 1);
    network.frozen.requires_grad_(true);
    network.first->weight.requires_grad_(false);
    step();
    EXPECT_EQ(pushed("frozen"), 1);
    EXPECT_EQ(pushed("first.weight"), 0);
    EXPECT_NE(network.frozen.item<float>(), 3);
    network.frozen.requires_grad_(false);
  }
  // The binding has gone, and what was frozen then knows it no more.
  network.frozen.requires_grad_(true);
  network.Forward(torch::randn({4, 3})).square().mean().backward();
  EXPECT_TRUE(network.frozen.grad().defined());
}

// Loops that are wrong; each is in its first step.
class WrongLoopTest : public ::testing::Test {
 protected:
  WrongLoopTest() {
    EXPECT_TRUE(binding_.ok()) << binding_.status();
    EXPECT_TRUE((*binding_)->Attach(session_, 4, 0).ok());
    EXPECT_TRUE(session_.NextStep().has_value());
  }
  torch::Tensor Loss() { return network_.Forward(torch::randn({4, 3})).square().mean(); }

  Network network_;
  FakeSession session_{{Plan(1), Plan(2)}, 0.1};
  const absl::StatusOr<std::unique_ptr<ModuleBinding>> binding_ = ModuleBinding::Create(network_);
};

TEST_F(WrongLoopTest, OneThatForgetsToPullIsToldSo) {
  ASSERT_TRUE((*binding_)->Backward(Loss()).ok());
  ASSERT_TRUE((*binding_)->Complete(1).ok());
  EXPECT_EQ((*binding_)->Backward(Loss()).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE((*binding_)->PullAhead().ok());
  ASSERT_TRUE(session_.NextStep().has_value());
  EXPECT_TRUE((*binding_)->Backward(Loss()).ok());
}

TEST_F(WrongLoopTest, OneThatCallsBackwardOfTheLossItselfIsToldSo) {
  Loss().backward();
  const absl::Status status = (*binding_)->Complete(1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("loss.backward()"), std::string::npos) << status;
}

TEST_F(WrongLoopTest, ParametersThatWereGivenOtherMemoryAreNamed) {
  network_.second->to(torch::kDouble);
  network_.second->to(torch::kFloat);
  const absl::Status status = (*binding_)->Backward(Loss());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("second.weight has other memory"), std::string::npos) << status;
}

TEST(ModuleBindingTest, WhatNoLastMicrobatchHasSentCompleteSends) {
  torch::manual_seed(5);
  Network network;
  FakeSession session({Plan(1)}, 0.1);
  const auto binding = ModuleBinding::Create(network);
  ASSERT_TRUE(binding.ok());
  ASSERT_TRUE((*binding)->Attach(session, 4, 0).ok());
  const torch::Tensor x = torch::randn({4, 3});
  network.eval();  // the normalisation of each half is that of the whole
  const torch::Tensor loss = network.Forward(x).square().mean();
  const torch::Tensor expected =
      network.second->weight - 0.1 * torch::autograd::grad({loss}, {network.second->weight})[0];
  ASSERT_TRUE(session.NextStep().has_value());
  for (const int half : {0, 1}) {
    const torch::Tensor part = network.Forward(x.slice(0, 2 * half, 2 * half + 2));
    ASSERT_TRUE((*binding)->Backward(part.square().mean() * 0.5, /*last=*/false).ok());
  }
  EXPECT_THAT(session.PushedNames(), ElementsAre());
  ASSERT_TRUE((*binding)->Complete(1).ok());
  EXPECT_EQ(session.PushedNames().size(), 9);
  ASSERT_TRUE((*binding)->Pull().ok());
  EXPECT_TRUE(torch::allclose(network.second->weight, expected, 0, 1e-6));
}

TEST(ModuleBindingTest, AfterPullAheadForwardWaitsForEachLayerWhenItComesToIt) {
  torch::manual_seed(3);
  Network network;
  FakeSession session({Plan(1), Plan(2)}, 0.1);
  const auto binding = ModuleBinding::Create(network);
  ASSERT_TRUE(binding.ok());
  ASSERT_TRUE((*binding)->Attach(session, 4, 0).ok());
  const torch::Tensor x = torch::randn({4, 3});
  const auto step = [&] {
    ASSERT_TRUE((*binding)->Backward(network.Forward(x).square().mean()).ok());
    ASSERT_TRUE((*binding)->Complete(1).ok());
  };
  ASSERT_TRUE(session.NextStep().has_value());
  step();
  ASSERT_TRUE((*binding)->Pull().ok());
  torch::Tensor expected;
  {
    const torch::NoGradGuard no_grad;
    network.eval();
    expected = network.Forward(x);
  }
  ASSERT_TRUE((*binding)->PullAhead().ok());
  EXPECT_THAT(session.awaited(), ElementsAre());
  {
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(torch::equal(network.Forward(x), expected));
    network.train();
  }
  EXPECT_THAT(session.awaited(),
              ElementsAre("first.weight", "first.bias", "norm.weight", "norm.bias", "second.weight",
                          "second.bias", "frozen"));
  ASSERT_TRUE(session.NextStep().has_value());
  step();
  EXPECT_EQ(session.awaited().size(), 7);  // what it has awaited is here
  for (const std::string& name : session.PushedNames()) EXPECT_NE(name, "unused");
}

TEST(ModuleBindingTest, AScriptedForwardWaitsToo) {
  torch::jit::Module module("layers");
  module.register_parameter("w", torch::ones({3, 2}).requires_grad_(), /*is_buffer=*/false);
  module.register_parameter("unused", torch::ones({2}).requires_grad_(), /*is_buffer=*/false);
  module.register_parameter("b", torch::ones({2}).requires_grad_(), /*is_buffer=*/false);
  module.define("def forward(self, x):\n  return (x.matmul(self.w) + self.b).square().mean()\n");
  // More than once: the interpreter optimises what it has seen.
  FakeSession session({Plan(1), Plan(2), Plan(3), Plan(4)}, 0.1);
  const auto binding = ModuleBinding::Create(module);
  ASSERT_TRUE(binding.ok());
  ASSERT_TRUE((*binding)->Attach(session, 4, 0).ok());
  const torch::Tensor x = torch::ones({4, 3});
  while (const auto plan = session.NextStep()) {
    ASSERT_TRUE((*binding)->PullAhead().ok());
    const torch::Tensor loss = module.forward({x}).toTensor();
    EXPECT_TRUE(std::isfinite(loss.item<double>())) << plan->step;
    // In which order is the interpreter's choice.
    EXPECT_THAT(session.awaited(), UnorderedElementsAre("w", "b")) << plan->step;
    ASSERT_TRUE((*binding)->Backward(loss).ok());
    ASSERT_TRUE((*binding)->Complete(1).ok());
  }
}

TEST(ModuleBindingTest, WhatNoForwardHasReadAfterPullAheadIsAwaitedAtTheEnd) {
  Network network;
  FakeSession session({Plan(1)}, 0.1);
  {
    const auto binding = ModuleBinding::Create(network);
    ASSERT_TRUE(binding.ok());
    ASSERT_TRUE((*binding)->Attach(session, 4, 0).ok());
    ASSERT_TRUE((*binding)->PullAhead().ok());
  }
  for (const auto& parameter : network.parameters()) {
    EXPECT_TRUE(parameter.isfinite().all().item<bool>());
  }
}

TEST(ModuleBindingTest, MicrobatchesAddUpAndAreSentInTheLastOnly) {
  torch::manual_seed(2);
  torch::nn::Linear whole(3, 1);
  torch::nn::Linear cut(3, 1);
  {
    const torch::NoGradGuard no_grad;
    cut->weight.copy_(whole->weight);
    cut->bias.copy_(whole->bias);
  }
  const torch::Tensor x = torch::randn({7, 3});
  whole(x).square().mean().backward();

  FakeSession session({Plan(1)}, 0.1);
  const auto binding = ModuleBinding::Create(*cut);
  ASSERT_TRUE((*binding)->Attach(session, 7, 0).ok());
  ASSERT_TRUE(session.NextStep().has_value());
  ASSERT_TRUE((*binding)->Backward(cut(x.narrow(0, 0, 4)).square().mean() * (4.0 / 7), false).ok());
  EXPECT_THAT(session.PushedNames(), ElementsAre());
  ASSERT_TRUE((*binding)->Backward(cut(x.narrow(0, 4, 3)).square().mean() * (3.0 / 7), true).ok());
  EXPECT_EQ(session.PushedNames().size(), 2);
  const auto sent = torch::from_blob(session.gradient(0).data(), {1, 3});
  EXPECT_TRUE(torch::allclose(sent, whole->weight.grad(), 0, 1e-6));
}

TEST(ModuleBindingTest, AGradientOfAnEarlierMicrobatchOnlyIsSentToo) {
  torch::nn::Linear layer(2, 2);
  FakeSession session({Plan(1)}, 0.1);
  const auto binding = ModuleBinding::Create(*layer);
  ASSERT_TRUE((*binding)->Attach(session, 4, 0).ok());
  ASSERT_TRUE(session.NextStep().has_value());
  ASSERT_TRUE((*binding)->Backward(layer->weight.sum(), false).ok());
  ASSERT_TRUE((*binding)->Backward(layer->bias.sum(), true).ok());
  EXPECT_THAT(session.PushedNames(), ElementsAre("bias", "weight"));
}

TEST(ModuleBindingTest, ParametersAreTheSessionsMemoryAndKeepItWhenAllElseHasGone) {
  torch::nn::Linear layer(2, 2);
  auto session = std::make_unique<FakeSession>(std::vector<StepPlan>{Plan(1)}, 0.1);
  session->initialize = false;
  session->initial = {0.5, 0.25};
  const void* const memory = [&] {
    const auto binding = ModuleBinding::Create(*layer);
    EXPECT_TRUE((*binding)->Attach(*session, 4, 0).ok());
    return session->parameter(0).data();
  }();
  session.reset();
  // Not a copy, of what may be half of the machine's memory.
  EXPECT_EQ(layer->weight.data_ptr(), memory);
  EXPECT_TRUE(torch::equal(layer->weight, torch::full({2, 2}, 0.5)));
  EXPECT_TRUE(torch::equal(layer->bias, torch::full({2}, 0.25)));
  layer->weight.sum().backward();  // no hook is left
  EXPECT_TRUE(layer->weight.grad().defined());
}

TEST(ModuleBindingTest, AStepWithoutSamplesPushesNothing) {
  Network network;
  FakeSession session({Plan(1)}, 0.1);
  const auto binding = ModuleBinding::Create(network);
  ASSERT_TRUE((*binding)->Attach(session, 4, 0).ok());
  ASSERT_TRUE(session.NextStep().has_value());
  ASSERT_TRUE((*binding)->Complete(0).ok());
  EXPECT_THAT(session.PushedNames(), ElementsAre());
}

TEST(ModuleBindingTest, LibTorchsErrorsAndTheServicesBecomeStatuses) {
  torch::nn::Linear layer(2, 2);
  FakeSession session({Plan(1), Plan(2)}, 0.1);
  const auto binding = ModuleBinding::Create(*layer);
  ASSERT_TRUE((*binding)->Attach(session, 4, 0).ok());
  const absl::Status not_scalar = (*binding)->Backward(layer->weight * 2);
  EXPECT_EQ(not_scalar.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(not_scalar.message()), HasSubstr("scalar"));
  session.push_status = absl::UnavailableError("no shard");
  EXPECT_EQ((*binding)->Backward(layer->weight.sum()).message(), "no shard");
}

TEST(ModuleBindingTest, AModuleWithNothingToTrainIsRefused) {
  torch::nn::Linear layer(2, 2);
  for (auto& parameter : layer->parameters()) parameter.set_requires_grad(false);
  EXPECT_EQ(ModuleBinding::Create(*layer).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ModuleBindingTest, AScriptedModuleThatReplacesItsBufferIsFollowed) {
  torch::jit::Module module("counter");
  module.register_parameter("w", torch::ones({2}).requires_grad_(), /*is_buffer=*/false);
  module.register_parameter("half", torch::ones({2}, torch::kHalf).requires_grad_(),
                            /*is_buffer=*/false);
  module.register_buffer("count", torch::zeros({}, torch::kLong));
  module.define(
      "def forward(self, x):\n  self.count = self.count + 1\n"
      "  return (self.w * x).sum() + (self.half * x).sum()\n");
  FakeSession session({Plan(1), Plan(2)}, 0.5);
  const auto binding = ModuleBinding::Create(module);
  ASSERT_TRUE(binding.ok()) << binding.status();
  ASSERT_TRUE((*binding)->Attach(session, 4, 0).ok());
  while (const auto plan = session.NextStep()) {
    const torch::Tensor loss = module.forward({torch::ones({2})}).toTensor();
    ASSERT_TRUE((*binding)->Backward(loss).ok());
    ASSERT_TRUE((*binding)->Complete(1).ok());
    ASSERT_TRUE((*binding)->Pull().ok());
  }
  EXPECT_TRUE(torch::equal(module.attr("w").toTensor(), torch::zeros({2})));
  EXPECT_EQ(module.attr("count").toTensor().item<int64_t>(), 2);
  EXPECT_EQ(session.PushedNames().size(), 3);
}

}  // namespace
}  // namespace parley
