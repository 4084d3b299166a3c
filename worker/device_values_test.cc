#include "worker/device_values.h"

#include <ATen/ops/from_blob.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "client/torch/testing/fake_session.h"
#include "common/clock/steady_now.h"
#include "common/tensor.h"
#include "worker/device/fake_device.h"

namespace parley {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Small ones, in buckets of three values each (of the last one there are two), and a large one,
// which takes eight pinned blocks.
std::vector<TensorSpec> Specs() {
  std::vector<TensorSpec> specs;
  for (const int64_t elements : {3, 3, 3, 3, 40, 3, 6}) {
    TensorSpec spec;
    spec.set_name("tensor " + std::to_string(specs.size()));
    spec.set_dtype(F32);
    spec.add_shape(elements);
    specs.push_back(spec);
  }
  return specs;
}

// Rank 0 of two, which owns all that it is asked to bring; the other one comes to a broadcast when
// the test says so.
class DeviceValuesTest : public ::testing::Test {
 protected:
  explicit DeviceValuesTest(const FakeDevice::Options& options = FakeDevice::Options())
      : device_(options) {}
  void SetUp() override {
    session_.initial.assign(Specs().size(), 1);
    ASSERT_TRUE(session_.Register(Specs(), 1, 0).ok());
    ASSERT_TRUE(session_.Pull().ok());
    DeviceValues::Options options;
    options.staged_elements = 5;
    options.bucket_elements = 3;
    options.tiny = 0;
    options.direct = 8;
    options.patience = absl::Milliseconds(200);
    values_ = *DeviceValues::Make(device_, Specs(), options);
    for (const TensorSpec& spec : Specs()) {
      memory_.push_back(*device_.Allocate(spec.name(), ByteCount(spec)));
      tensors_.push_back(
          at::from_blob(memory_.back().data(), {static_cast<int64_t>(ElementCount(spec))}));
    }
    values_->Attach(session_, tensors_);
    shared_ = *device_.MakeEvent();
  }

  void Form() {
    DeviceValues::Sharing sharing;
    for (const TensorSpec& spec : Specs()) sharing.ranges.push_back({{0, ByteCount(spec), 0}});
    if (half_owned_) {
      sharing.ranges[0].clear();
      sharing.ranges.back() = {{0, 12, 0}};
    }
    sharing.stands = [] { return true; };
    sharing.await = [this](size_t most) {
      if (begun_ > come_ + most) come_ = begun_ - most;
      return absl::OkStatus();
    };
    sharing.broadcast = [this](std::byte* values, absl::Span<const DeviceGroup::Part> parts) {
      size_t bytes = 0;
      for (const DeviceGroup::Part& part : parts) bytes += part.count * sizeof(float);
      had_come_.push_back(come_);
      const size_t number = ++begun_;
      return device_.Join(
          StreamId::kCommunication, "broadcast", {{values, bytes}}, {{values, bytes}},
          [this, number] { return come_ >= number; }, [] {});
    };
    values_->Form(std::move(sharing));
    values_->ShareNext();
  }

  void ExpectAllAreThere() {
    ASSERT_TRUE(device_.Record(*shared_, StreamId::kCompute).ok());
    ASSERT_TRUE(device_.Await(*shared_, SteadyNow() + absl::Seconds(10)).ok());
    for (const at::Tensor& tensor : tensors_) {
      const auto* const found = tensor.const_data_ptr<float>();
      for (int64_t i = 0; i < tensor.numel(); ++i) EXPECT_EQ(found[i], 1);
    }
    EXPECT_THAT(device_.violations(), IsEmpty());
  }

  FakeDevice device_;
  FakeSession session_{{}, 0.1};
  std::vector<DeviceBuffer> memory_;
  std::vector<at::Tensor> tensors_;
  std::unique_ptr<DeviceValues> values_;
  std::unique_ptr<DeviceEvent> shared_;
  bool half_owned_ = false;
  std::atomic<size_t> begun_ = 0;
  std::atomic<size_t> come_ = 0;
  std::vector<size_t> had_come_;  // as each broadcast began
};

// The device waits for ranks that have not come, and the host must not wait for the device before
// it has asked for them, which it does without giving up.
TEST_F(DeviceValuesTest, TheHostWaitsForTheOtherRanksBeforeItWaitsForTheDevice) {
  Form();
  const absl::Status status = values_->BringRest();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(begun_, 8);
  EXPECT_THAT(had_come_, ElementsAre(0, 0, 0, 1, 2, 3, 4, 5)) << "and for no more than it must";
  come_ = begun_.load();
  ExpectAllAreThere();
}

TEST_F(DeviceValuesTest, MemoryThatIsShownNoMoreIsLetGoOfWhenTheOtherRanksHaveCome) {
  session_.shows = true;
  ASSERT_TRUE(values_->BringAll().ok());
  Form();
  session_.shows = false;
  const absl::Status status = values_->BringRest();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(had_come_[4], 4);
  come_ = begun_.load();
  ExpectAllAreThere();
}

TEST_F(DeviceValuesTest, WhatIsNotShownOfATensorComesByPinnedBlocks) {
  session_.shows = true;
  for (const std::optional<size_t> hidden : {std::optional<size_t>(64), std::optional<size_t>(0),
                                             std::optional<size_t>(152), std::optional<size_t>()}) {
    session_.hidden = hidden;
    for (const at::Tensor& tensor : tensors_) {
      std::fill_n(tensor.mutable_data_ptr<float>(), tensor.numel(), 0.0F);
    }
    ASSERT_TRUE(values_->BringAll().ok());
    ExpectAllAreThere();
  }
}

class WithoutPins : public DeviceValuesTest {
 protected:
  WithoutPins() : DeviceValuesTest({.most_pins = 0}) {}
};

TEST_F(WithoutPins, AreTriedOnceForEachTensorAndPullAndNotForEver) {
  session_.shows = true;
  for (int pull = 0; pull < 20; ++pull) {
    session_.shows = pull != 5;
    ASSERT_TRUE(values_->BringAll().ok());
    ExpectAllAreThere();
  }
  EXPECT_EQ(device_.refused_pins(), 10u) << "there is one that is large";
}

// A part of two values at a time; pieces of five are awaited, so a piece has three parts.
class WithFewPins : public DeviceValuesTest {
 protected:
  WithFewPins() : DeviceValuesTest({.most_pins = 4}) {}
};

TEST_F(WithFewPins, WhatIsRefusedAfterOthersOfItsPieceComesByPinnedBlocks) {
  session_.shows = true;
  for (int pull = 0; pull < 20; ++pull) {
    for (const at::Tensor& tensor : tensors_) {
      std::fill_n(tensor.mutable_data_ptr<float>(), tensor.numel(), 0.0F);
    }
    ASSERT_TRUE(values_->BringAll().ok());
    ExpectAllAreThere();
  }
  EXPECT_GE(device_.pinned(), 3u);
  EXPECT_EQ(device_.refused_pins(), 10u);
  EXPECT_EQ(device_.copies_of_unpinned(), 0u);
}

TEST_F(DeviceValuesTest, WhatNobodyOwnsComesFromTheHost) {
  half_owned_ = true;
  Form();
  ASSERT_TRUE(values_->BringAsUsed().ok());
  ASSERT_TRUE(values_->BringRemaining().ok());
  EXPECT_EQ(begun_, 6) << "units that are whole";
  come_ = begun_.load();
  ExpectAllAreThere();
}

}  // namespace
}  // namespace parley
