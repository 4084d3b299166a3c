#include "server/pipeline_stage/device_stage_binding.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/torch/testing/fake_session.h"
#include "worker/device/fake_device.h"

namespace parley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<StepPlan> Plans(size_t count) {
  std::vector<StepPlan> plans(count);
  for (size_t i = 0; i < count; ++i) {
    plans[i].step = i + 1;
    plans[i].samples = {0, 1, 2, 3};
    plans[i].weight = 1;
  }
  return plans;
}

// Two parameters, of which a backward may use both or one, and a buffer that counts.
class DeviceStageBindingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    binding_ = *DeviceStageBinding::Make(Listed(), device_, absl::Seconds(10));
    ASSERT_TRUE(binding_->AttachPart(session_, ModelSpecs(), 4, 0).ok());
    ASSERT_TRUE(session_.NextStep().has_value());
  }
  void TearDown() override {
    binding_.reset();
    EXPECT_THAT(device_.violations(), IsEmpty());
  }

  std::vector<NamedTensor> Listed() const {
    return {{"first", first_}, {"second", second_}, {"count", count_, /*buffer=*/true}};
  }
  std::vector<TensorSpec> ModelSpecs() const { return binding_->specs(); }

  // The gradient of `first` is `factor` everywhere.
  absl::Status Backward(double factor) {
    return binding_->GatherGradients([&] {
      first_.mul(factor).sum().backward();
      const c10::NoGradGuard no_grad;
      count_.add_(1);
    });
  }
  template <class T>
  T Gradient(size_t tensor) {
    T value;
    std::memcpy(&value, session_.gradient(tensor).data(), sizeof value);
    return value;
  }

  FakeDevice device_{{.for_tensors_of_the_cpu = true}};
  at::Tensor first_ = at::ones({6}).requires_grad_();
  at::Tensor second_ = at::ones({2, 3}).requires_grad_();
  at::Tensor count_ = at::zeros({}, at::kLong);
  FakeSession session_{Plans(3), 1.0};
  std::unique_ptr<StageBinding> binding_;
};

TEST_F(DeviceStageBindingTest, ComputesInMemoryOfItsOwn) {
  EXPECT_NE(first_.const_data_ptr(), session_.parameter(0).data());
  EXPECT_TRUE(at::equal(first_, at::ones({6})));
}

TEST_F(DeviceStageBindingTest, TheSumOfTheMicrobatchesIsPushedOnceWithTheBuffers) {
  ASSERT_TRUE(Backward(2).ok());
  ASSERT_TRUE(Backward(3).ok());
  EXPECT_THAT(session_.PushedNames(), IsEmpty());
  ASSERT_TRUE(binding_->PushGathered({0, 1}).ok());
  EXPECT_THAT(session_.PushedNames(), ElementsAre("first")) << "second has no gradient";
  EXPECT_EQ(Gradient<float>(0), 5);
  ASSERT_TRUE(binding_->PushGathered({0, 1}).ok());
  ASSERT_TRUE(binding_->Complete(0).ok());
  EXPECT_THAT(session_.PushedNames(), ElementsAre("first", "count"));
  EXPECT_EQ(Gradient<int64_t>(2), 2);
}

TEST_F(DeviceStageBindingTest, AGradientThatWasComputedInAnotherWayIsAdded) {
  for (const double factor : {1.0, 2.0}) {
    const absl::Status gathered = binding_->GatherGradients([&] {
      const c10::NoGradGuard no_grad;
      binding_->AddGradient(second_, at::full_like(second_, factor));
      binding_->AddGradient(second_, at::Tensor());
    });
    ASSERT_TRUE(gathered.ok());
  }
  ASSERT_TRUE(binding_->PushGathered({0, 1}).ok());
  EXPECT_EQ(Gradient<float>(1), 3);
}

TEST_F(DeviceStageBindingTest, WhatAPullBringsIsOnTheDevice) {
  ASSERT_TRUE(Backward(2).ok());
  ASSERT_TRUE(binding_->PushGathered({0}).ok());
  ASSERT_TRUE(binding_->Complete(0).ok());
  EXPECT_TRUE(at::equal(first_, at::ones({6}))) << "until it is pulled";
  ASSERT_TRUE(binding_->PullAhead().ok());
  EXPECT_TRUE(at::equal(first_, at::full({6}, -1.0)));
  EXPECT_EQ(count_.item().toLong(), 1);
}

TEST_F(DeviceStageBindingTest, WhatWasGatheredOfAStepThatIsGivenUpIsDropped) {
  ASSERT_TRUE(Backward(2).ok());
  binding_->DropGradients();
  ASSERT_TRUE(binding_->PushGathered({0, 1}).ok());
  ASSERT_TRUE(binding_->Complete(0).ok());
  EXPECT_THAT(session_.PushedNames(), IsEmpty());
}

TEST_F(DeviceStageBindingTest, TensorsOfAnyTypeAndLayoutGoThereAndBack) {
  const LayerFlow flow = {at::rand({4, 5}).t(), at::arange(7), at::arange(3).to(at::kByte),
                          at::ones({0, 2})};
  const auto there = binding_->FromHost(flow);
  ASSERT_TRUE(there.ok()) << there.status();
  const auto here = binding_->ToHost({there->at(0).t(), there->at(1), there->at(2), there->at(3)});
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_TRUE(at::equal(here->at(0), flow[0].t()));
  EXPECT_TRUE(here->at(0).is_contiguous());
  for (size_t i = 1; i < flow.size(); ++i) EXPECT_TRUE(at::equal(here->at(i), flow[i])) << i;
}

TEST_F(DeviceStageBindingTest, WhatIsSentLiesInPinnedMemoryThatIsUsedAgainWhenItIsSent) {
  const LayerFlow there = *binding_->FromHost({at::rand({4, 5}), at::rand({100})});
  const size_t before = device_.allocations();
  {
    const LayerFlow sent = *binding_->ToHost(there);
    EXPECT_EQ(device_.allocations(), before + 2);
    const LayerFlow next = *binding_->ToHost(there);
    EXPECT_EQ(device_.allocations(), before + 4) << "the first are not sent yet";
    EXPECT_TRUE(at::equal(sent[0], there[0]));
  }
  const LayerFlow later = *binding_->ToHost(there);
  EXPECT_EQ(device_.allocations(), before + 4);
  EXPECT_TRUE(at::equal(later[1], there[1]));
  EXPECT_THAT(device_.violations(), IsEmpty());
}

// A stage's binding with a device of its own.
struct PeerStage {
  FakeDevice device{{.for_tensors_of_the_cpu = true}};
  const at::Tensor weight = at::ones({6}).requires_grad_();
  const std::unique_ptr<StageBinding> binding =
      *DeviceStageBinding::Make({{"weight", weight}}, device, absl::Seconds(10));
};

TEST(PeerStages, TensorsGoFromOneDeviceToTheOther) {
  PeerStage sender;
  PeerStage receiver;
  EXPECT_TRUE(receiver.binding->Reaches(sender.binding->peer_handle()));
  EXPECT_FALSE(receiver.binding->Reaches(""));
  EXPECT_FALSE(receiver.binding->Reaches("nothing"));
  const size_t to_device = receiver.device.copied_to_device();
  for (int unit = 0; unit < 3; ++unit) {
    sender.binding->BeginUnit();
    const LayerFlow flow = {at::rand({4, 5}).t(), at::arange(7), at::ones({0, 2}),
                            at::rand({1000})};
    const auto placed = sender.binding->ToPeer(flow);
    ASSERT_TRUE(placed.ok()) << placed.status();
    const auto here = receiver.binding->FromPeer(*placed);
    ASSERT_TRUE(here.ok()) << here.status();
    ASSERT_EQ(here->size(), flow.size());
    for (size_t i = 0; i < flow.size(); ++i) EXPECT_TRUE(at::equal(here->at(i), flow[i])) << i;
  }
  EXPECT_EQ(receiver.device.copied_to_device(), to_device) << "nothing by the host";
  EXPECT_EQ(receiver.device.copied_between_devices(), 3 * (20 * 4 + 7 * 8 + 1000 * 4));
  EXPECT_THAT(sender.device.violations(), IsEmpty());
  EXPECT_THAT(receiver.device.violations(), IsEmpty());
}

TEST(PeerStages, WhatIsSentInAUnitStaysUntilTheNextOne) {
  PeerStage sender;
  PeerStage receiver;
  const at::Tensor first = at::rand({1000});
  const at::Tensor second = at::rand({1000});
  const auto one = *sender.binding->ToPeer({first});
  const auto other = *sender.binding->ToPeer({second});
  EXPECT_TRUE(at::equal(receiver.binding->FromPeer(one)->front(), first));
  EXPECT_TRUE(at::equal(receiver.binding->FromPeer(other)->front(), second));
}

TEST(PeerStages, AnEvaluationTakesNoMoreMemoryThanIsReadAtATime) {
  PeerStage sender;
  sender.binding->BeginUnit();
  size_t allocations = 0;
  for (uint64_t batch = 0; batch < 50; ++batch) {
    sender.binding->BeginBatch(batch, batch < 4 ? 0 : batch - 3);
    ASSERT_TRUE(sender.binding->ToPeer({at::rand({2 << 20})}).ok());  // 8 MiB
    if (batch == 10) allocations = sender.device.allocations();
  }
  EXPECT_EQ(sender.device.allocations(), allocations);
}

TEST(PeerStages, WhatIsReadOfAnotherIsWaitedForBeforeAnythingIsTold) {
  PeerStage sender;
  PeerStage receiver;
  const auto placed = *sender.binding->ToPeer({at::rand({1000})});
  receiver.device.Stall(StreamId::kCompute);
  EXPECT_TRUE(receiver.binding->SettlePeers().ok()) << "nothing is read";
  const auto here = receiver.binding->FromPeer(placed);
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_EQ(receiver.binding->SettlePeers().code(), absl::StatusCode::kDeadlineExceeded);
  receiver.device.Resume(StreamId::kCompute);
  EXPECT_TRUE(receiver.binding->SettlePeers().ok());
  receiver.device.Stall(StreamId::kCompute);
  const auto of_the_host = receiver.binding->FromHost({at::rand({1000})});
  ASSERT_TRUE(of_the_host.ok()) << of_the_host.status();
  EXPECT_TRUE(receiver.binding->SettlePeers().ok()) << "it was waited for";
  receiver.device.Resume(StreamId::kCompute);
  EXPECT_TRUE(receiver.binding->Settle().ok());
}

TEST(PeerStages, MemoryThatCannotBeReachedIsSaidAndWhatToDo) {
  PeerStage receiver;
  const auto came = receiver.binding->FromPeer({{"1 999999 4096", 4096, 0, F32, {3}}});
  // Not Unavailable, which is a process that is gone.
  EXPECT_EQ(came.status().code(), absl::StatusCode::kInternal) << came.status();
  EXPECT_THAT(std::string(came.status().message()), HasSubstr("pipeline.peer_copies: false"));
}

TEST(PeerStages, MemoryOfAnotherMachineIsNotTried) {
  PeerStage sender;
  PeerStage receiver;
  std::string handle = sender.binding->peer_handle();
  handle[0] = handle[0] == '0' ? '1' : '0';
  EXPECT_FALSE(receiver.binding->Reaches(handle));
}

TEST(SilentDevice, EndsEachWait) {
  FakeDevice device({.for_tensors_of_the_cpu = true});
  const at::Tensor weight = at::ones({6}).requires_grad_();
  const at::Tensor mean = at::zeros({6});
  FakeSession session(Plans(1), 1.0);
  const auto binding = *DeviceStageBinding::Make({{"weight", weight}, {"mean", mean, true}}, device,
                                                 absl::Seconds(10));
  ASSERT_TRUE(binding->AttachPart(session, binding->specs(), 4, 0).ok());
  ASSERT_TRUE(binding->GatherGradients([&] { weight.sum().backward(); }).ok());
  device.Stall(StreamId::kCompute);
  ASSERT_TRUE(binding->FromHost({at::ones({6})}).ok()) << "nobody waits for that";
  const auto hangs = [](const absl::Status& status) {
    return status.code() == absl::StatusCode::kDeadlineExceeded;
  };
  EXPECT_TRUE(hangs(binding->Settle()));
  EXPECT_TRUE(hangs(binding->ToHost({weight.detach()}).status()));
  EXPECT_TRUE(hangs(binding->PushGathered({0})));
  EXPECT_TRUE(hangs(binding->Complete(0).status()));
  EXPECT_THAT(session.PushedNames(), IsEmpty());
}

TEST_F(DeviceStageBindingTest, NoRoomForPinnedMemoryIsSaidBeforeItTrains) {
  FakeDevice small({.memory_bytes = 100, .for_tensors_of_the_cpu = true});
  const auto binding = DeviceStageBinding::Make(Listed(), small, absl::Seconds(10));
  EXPECT_EQ(binding.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(binding.status().message()), HasSubstr("tensors on their way"));
}

}  // namespace
}  // namespace parley
