#include "worker/device/pinned_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/clock/steady_now.h"
#include "worker/device/fake_device.h"

namespace parley {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::Time Soon() { return SteadyNow() + absl::Seconds(10); }

std::vector<std::byte> Bytes(size_t count, uint8_t first) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(first + i);
  return bytes;
}

// Blocks of 16 bytes, two of them: most tensors are cut, and each block is used again.
class PinnedCopiesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    copies_ = *PinnedCopies::Make(device_, {.block_bytes = 16, .blocks = 2});
  }

  DeviceBuffer OnDevice(size_t bytes) { return *device_.Allocate("tensor", bytes); }
  static PinnedCopies::In In(const std::vector<std::byte>& from, const DeviceBuffer& to) {
    return {from.data(), to.data(), from.size()};
  }
  static PinnedCopies::Out Out(const DeviceBuffer& from, std::vector<std::byte>& to) {
    return {from.data(), to.data(), to.size()};
  }
  // What forward does: each byte more by one.
  void AddOne(const DeviceBuffer& tensor) {
    const Range all = {tensor.data(), tensor.size()};
    ASSERT_TRUE(device_
                    .Compute(StreamId::kCompute, "adding", {all}, {all},
                             [all] {
                               auto* const begin = const_cast<std::byte*>(all.begin);
                               for (size_t i = 0; i < all.bytes; ++i) {
                                 begin[i] =
                                     static_cast<std::byte>(std::to_integer<int>(begin[i]) + 1);
                               }
                             })
                    .ok());
  }

  FakeDevice device_;
  std::unique_ptr<PinnedCopies> copies_;
};

TEST_F(PinnedCopiesTest, TensorsOfAnySizeAreComputedWithAndComeBackInOrder) {
  const std::vector<size_t> sizes = {5, 16, 0, 40, 1, 3};
  for (uint8_t step = 0; step < 3; ++step) {
    std::vector<std::vector<std::byte>> there, back;
    std::vector<DeviceBuffer> tensors;
    std::vector<PinnedCopies::In> in;
    std::vector<PinnedCopies::Out> out;
    for (const size_t size : sizes) {
      there.push_back(Bytes(size, step));
      back.emplace_back(size);
      tensors.push_back(OnDevice(size));
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      in.push_back(In(there[i], tensors[i]));
      out.push_back(Out(tensors[i], back[i]));
    }
    ASSERT_TRUE(copies_->ToDevice(in, Soon()).ok());
    // The host's memory is its own again.
    for (auto& bytes : there) std::fill(bytes.begin(), bytes.end(), std::byte{99});
    for (const DeviceBuffer& tensor : tensors) AddOne(tensor);
    ASSERT_TRUE(copies_->ToHost(out, Soon()).ok());
    for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(back[i], Bytes(sizes[i], step + 1)) << i;
  }
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(PinnedCopiesTest, WhatFitsIsGivenToTheDeviceWithoutAWait) {
  const std::vector<std::byte> bytes = Bytes(32, 7);
  const DeviceBuffer tensor = OnDevice(32);
  const size_t awaits = device_.awaits();
  ASSERT_TRUE(copies_->ToDevice({In(bytes, tensor)}, Soon()).ok());
  EXPECT_EQ(device_.awaits(), awaits);
}

TEST_F(PinnedCopiesTest, SmallTensorsShareABlockAndItsWait) {
  std::vector<DeviceBuffer> tensors;
  std::vector<std::vector<std::byte>> back(8, std::vector<std::byte>(2));
  std::vector<PinnedCopies::Out> out;
  for (auto& bytes : back) {
    tensors.push_back(OnDevice(2));
    ASSERT_TRUE(device_.Clear(StreamId::kCompute, tensors.back().data(), 2).ok());
    out.push_back(Out(tensors.back(), bytes));
  }
  const size_t awaits = device_.awaits();
  ASSERT_TRUE(copies_->ToHost(out, Soon()).ok());
  EXPECT_EQ(device_.awaits(), awaits + 1);
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(PinnedCopiesTest, ASilentDeviceEndsTheWaitAndNothingIsWrittenLater) {
  FakeDevice device;
  auto copies = *PinnedCopies::Make(device, {.block_bytes = 16, .blocks = 2});
  const DeviceBuffer tensor = *device.Allocate("tensor", 20);
  std::vector<std::byte> back(20, std::byte{1});
  device.Stall(StreamId::kCompute);
  const absl::Status status = copies->ToHost({Out(tensor, back)}, Soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  copies.reset();
  EXPECT_THAT(back, Each(std::byte{1}));
}

TEST_F(PinnedCopiesTest, NoPinnedMemoryIsSaidWithWhatItIsFor) {
  FakeDevice small({.memory_bytes = 20});
  const auto copies = PinnedCopies::Make(small, {.block_bytes = 16, .blocks = 2});
  EXPECT_EQ(copies.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(copies.status().message()), HasSubstr("tensors on their way"));
}

}  // namespace
}  // namespace parley
