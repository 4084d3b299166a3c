#include "worker/device_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <vector>

#include "client/torch/testing/fake_session.h"
#include "worker/device/fake_device.h"
#include "worker/host_binding.h"

namespace parley {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two layers with a batch normalisation between them, one parameter that nothing uses, one frozen,
// and one that only some microbatches use.
class TestNetwork final : public Network {
 public:
  TestNetwork() {
    torch::manual_seed(5);
    module_ = std::make_shared<torch::nn::Module>();
    first_ = module_->register_module("first", torch::nn::Linear(3, 4));
    norm_ = module_->register_module("norm", torch::nn::BatchNorm1d(4));
    second_ = module_->register_module("second", torch::nn::Linear(4, 1));
    unused_ = module_->register_parameter("unused", torch::ones({2}));
    frozen_ = module_->register_parameter("frozen", torch::full({1}, 3.0), false);
    rare_ = module_->register_parameter("rare", torch::ones({1}));
  }
  at::Tensor Forward(const at::Tensor& x) override {
    at::Tensor h = second_(torch::relu(norm_(first_(x)))) + frozen_;
    return x.size(0) > 2 ? h * rare_ : h;
  }
  void SetTraining(bool training) override { module_->train(training); }
  std::vector<NamedTensor> Tensors() const override { return TensorsOf(*module_); }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  torch::nn::Linear first_{nullptr}, second_{nullptr};
  torch::nn::BatchNorm1d norm_{nullptr};
  at::Tensor unused_, frozen_, rare_;
};

std::vector<StepPlan> Plans(size_t count) {
  std::vector<StepPlan> plans(count);
  for (size_t i = 0; i < count; ++i) {
    plans[i].step = i + 1;
    plans[i].samples = {0, 1, 2, 3};
    plans[i].weight = 1;
  }
  return plans;
}

// Of all microbatches of a step.
using Microbatches = std::vector<at::Tensor>;

void Train(TrainingBinding& binding, Network& network, FakeSession& session,
           const Microbatches& microbatches) {
  ASSERT_TRUE(binding.Attach(session, 4, 0).ok());
  while (const auto plan = session.NextStep()) {
    for (size_t i = 0; i < microbatches.size(); ++i) {
      const at::Tensor x = binding.ToNetwork(microbatches[i]);
      const at::Tensor loss = network.Forward(x).square().mean() / microbatches.size();
      const absl::Status status = binding.Backward(loss, i + 1 == microbatches.size());
      ASSERT_TRUE(status.ok()) << status;
    }
    ASSERT_TRUE(binding.Complete(1).ok());
    ASSERT_TRUE(binding.Pull(/*ahead=*/false).ok());
  }
}

std::vector<std::byte> AllParameters(const FakeSession& session) {
  std::vector<std::byte> all;
  for (size_t i = 0; i < session.tensors().size(); ++i) {
    const auto values = session.parameter(i);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

class DeviceBindingTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<TrainingBinding>> Bind(const Network& network) {
    DeviceBinding::Options options;
    options.bucket_elements = 5;  // first.weight has 12
    options.patience = absl::Seconds(10);
    return DeviceBinding::Make(network, device_, options);
  }

  // Both ways, and compares.
  void TrainBothWays(const Microbatches& microbatches) {
    TestNetwork on_host;
    FakeSession host_session(Plans(4), 0.1);
    Train(**HostBinding::Make(on_host), on_host, host_session, microbatches);

    FakeSession session(Plans(4), 0.1);
    {
      auto binding = Bind(network_);
      ASSERT_TRUE(binding.ok()) << binding.status();
      Train(**binding, network_, session, microbatches);
    }
    EXPECT_THAT(device_.violations(), IsEmpty());
    EXPECT_EQ(AllParameters(session), AllParameters(host_session)) << "the same bits";
    std::vector<std::string> names = session.PushedNames();
    std::vector<std::string> expected = host_session.PushedNames();
    std::sort(names.begin(), names.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_THAT(names, ElementsAreArray(expected));
    // The network has them too, in memory of its own.
    const auto listed = network_.Tensors();
    const auto listed_host = on_host.Tensors();
    for (size_t i = 0; i < listed.size(); ++i) {
      EXPECT_TRUE(at::equal(listed[i].tensor, listed_host[i].tensor)) << listed[i].name;
      EXPECT_NE(listed[i].tensor.const_data_ptr(), session.parameter(i).data());
    }
  }

  FakeDevice device_{{.for_tensors_of_the_cpu = true}};
  TestNetwork network_;
};

TEST_F(DeviceBindingTest, TrainsToTheSameBitsAsOnTheHost) { TrainBothWays({torch::randn({4, 3})}); }

TEST_F(DeviceBindingTest, MicrobatchesAreAddedUpAndSentOnce) {
  TrainBothWays({torch::randn({4, 3}), torch::randn({4, 3})});
}

TEST_F(DeviceBindingTest, AGradientThatTheLastMicrobatchLacksIsSentToo) {
  TrainBothWays({torch::randn({4, 3}), torch::randn({2, 3})});
}

TEST_F(DeviceBindingTest, ParametersAndBuffersThatAreThereAlreadyComeToTheNetwork) {
  FakeSession session(Plans(1), 0.1);
  session.initialize = false;
  session.initial.assign(network_.Tensors().size(), 0.25);
  const auto binding = *Bind(network_);
  ASSERT_TRUE(binding->Attach(session, 4, 0).ok());
  for (const NamedTensor& named : network_.Tensors()) {
    if (named.tensor.scalar_type() != at::kFloat) continue;
    EXPECT_TRUE(at::equal(named.tensor, torch::full_like(named.tensor, 0.25))) << named.name;
  }
}

TEST_F(DeviceBindingTest, ASteadyStepAllocatesNothingOfTheDevice) {
  FakeSession session(Plans(5), 0.1);
  const auto binding = *Bind(network_);
  std::vector<size_t> allocations;
  session.on_complete = [&](uint64_t) { allocations.push_back(device_.allocations()); };
  Train(*binding, network_, session, {torch::randn({4, 3})});
  ASSERT_EQ(allocations.size(), 5);
  EXPECT_EQ(allocations[4], allocations[1]);
}

TEST_F(DeviceBindingTest, ADeviceThatHangsEndsTheStepWithAnError) {
  FakeSession session(Plans(1), 0.1);
  const auto binding = *Bind(network_);
  ASSERT_TRUE(binding->Attach(session, 4, 0).ok());
  ASSERT_TRUE(session.NextStep().has_value());
  device_.Stall(StreamId::kToHost);
  const absl::Status status =
      binding->Backward(network_.Forward(torch::randn({4, 3})).square().mean(), true);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(session.PushedNames(), IsEmpty());
}

TEST_F(DeviceBindingTest, WhatTheSessionRefusesIsWhatBackwardSays) {
  FakeSession session(Plans(1), 0.1);
  const auto binding = *Bind(network_);
  ASSERT_TRUE(binding->Attach(session, 4, 0).ok());
  ASSERT_TRUE(session.NextStep().has_value());
  session.push_status = absl::AbortedError("fenced");
  const absl::Status status =
      binding->Backward(network_.Forward(torch::randn({4, 3})).square().mean(), true);
  EXPECT_EQ(status, session.push_status);
}

TEST_F(DeviceBindingTest, NoRoomOnTheDeviceIsSaidBeforeItTrains) {
  FakeDevice small({.memory_bytes = 100, .for_tensors_of_the_cpu = true});
  const auto binding = DeviceBinding::Make(network_, small, {});
  EXPECT_EQ(binding.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(binding.status().message()), HasSubstr("buckets of gradients"));
}

TEST_F(DeviceBindingTest, ParametersOfOtherTypesAreRefused) {
  class Doubles final : public Network {
   public:
    at::Tensor Forward(const at::Tensor& x) override { return x * weight_; }
    void SetTraining(bool /*training*/) override {}
    std::vector<NamedTensor> Tensors() const override { return {{"weight", weight_}}; }

   private:
    at::Tensor weight_ = torch::ones({3}, torch::kDouble).requires_grad_();
  } network;
  const auto binding = Bind(network);
  EXPECT_EQ(binding.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(binding.status().message()), HasSubstr("weight is not float32"));
}

}  // namespace
}  // namespace parley
