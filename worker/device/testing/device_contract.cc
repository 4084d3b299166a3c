// What every ComputeDevice does: linked by a test of the fake one and, with the tag gpu, of a CUDA
// one.
#include "worker/device/testing/device_contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/base/casts.h"
#include "common/clock/steady_now.h"
#include "common/shared_memory/memory_segment.h"
#include "worker/device/gradient_path.h"
#include "worker/device/kernels_reference.h"
#include "worker/device/parameter_path.h"

namespace parley {
namespace {

using ::testing::HasSubstr;

constexpr StreamId kCompute = StreamId::kCompute;

class DeviceContract : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = MakeDeviceUnderTest();
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    event_ = *device_->MakeEvent();
  }

  static absl::Time Soon() { return SteadyNow() + absl::Seconds(30); }

  // Until all that the stream was given is done.
  void Finish(StreamId stream) {
    ASSERT_TRUE(device_->Record(*event_, stream).ok());
    const absl::Status status = device_->Await(*event_, Soon());
    ASSERT_TRUE(status.ok()) << status;
  }

  template <class T>
  DeviceBuffer OnDevice(const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    DeviceBuffer pinned = *device_->AllocatePinned("test", bytes);
    DeviceBuffer memory = *device_->Allocate("test", bytes);
    std::memcpy(pinned.data(), values.data(), bytes);
    EXPECT_TRUE(device_->CopyToDevice(kCompute, memory.data(), pinned.data(), bytes).ok());
    Finish(kCompute);
    return memory;
  }

  template <class T>
  std::vector<T> ToHost(const std::byte* memory, size_t count) {
    std::vector<T> values(count);
    DeviceBuffer pinned = *device_->AllocatePinned("test", count * sizeof(T));
    EXPECT_TRUE(device_->CopyToHost(kCompute, pinned.data(), memory, count * sizeof(T)).ok());
    Finish(kCompute);
    std::memcpy(values.data(), pinned.data(), count * sizeof(T));
    return values;
  }

  // Of all sizes, with what rounds badly, infinities and NaN among them.
  static std::vector<float> Values(size_t count) {
    std::mt19937 random(7);
    std::vector<float> values(count);
    for (float& value : values) {
      const uint32_t bits = random();
      std::memcpy(&value, &bits, sizeof value);
    }
    const float special[] = {0.0f,
                             -0.0f,
                             1.0f,
                             1.00390625f,  // half way between two bfloat16
                             1.01171875f,
                             std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN(),
                             std::numeric_limits<float>::max(),
                             std::numeric_limits<float>::denorm_min()};
    for (size_t i = 0; i < std::size(special) && i < count; ++i) values[i] = special[i];
    return values;
  }

  static bool IsNan(uint16_t bfloat16) { return (bfloat16 & 0x7fff) > 0x7f80; }
  static bool IsNan(float value) { return std::isnan(value); }
  static uint32_t Bits(uint16_t bfloat16) { return bfloat16; }
  static uint32_t Bits(float value) { return absl::bit_cast<uint32_t>(value); }

  // The same bits, or NaN both.
  template <class T>
  static void ExpectSame(const std::vector<T>& got, const std::vector<T>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      if (IsNan(got[i]) && IsNan(expected[i])) continue;
      ASSERT_EQ(Bits(got[i]), Bits(expected[i]))
          << "value " << i << ": " << got[i] << ", not " << expected[i];
    }
  }

  // Cuts `count` values of a tensor at `memory` into pieces of uneven sizes, `pieces` of them,
  // which lie in the bucket the other way round.
  static std::vector<Piece> Cut(float* memory, size_t count, size_t pieces) {
    std::vector<Piece> cut;
    size_t at = 0;
    for (size_t i = 0; i < pieces; ++i) {
      const size_t end = i + 1 == pieces ? count : count * (i + 1) * (i + 1) / (pieces * pieces);
      cut.push_back({memory + at, count - end, end - at});
      at = end;
    }
    return cut;
  }

  template <class T>
  void PackAndCompare(BucketType type, size_t count, size_t pieces, float scale) {
    std::vector<float> values = Values(count);
    std::vector<T> expected(count);
    PackReference(Cut(values.data(), count, pieces), scale, type,
                  reinterpret_cast<std::byte*>(expected.data()));
    DeviceBuffer tensor = OnDevice(values);
    DeviceBuffer bucket = OnDevice(std::vector<T>(count));
    const auto cut = Cut(reinterpret_cast<float*>(tensor.data()), count, pieces);
    ASSERT_TRUE(device_->Pack(kCompute, cut, scale, type, bucket.data()).ok());
    ExpectSame(ToHost<T>(bucket.data(), count), expected);

    // And back into another tensor.
    std::vector<float> unpacked(count);
    UnpackReference(Cut(unpacked.data(), count, pieces), type,
                    reinterpret_cast<const std::byte*>(expected.data()));
    DeviceBuffer back = OnDevice(std::vector<float>(count));
    const auto to = Cut(reinterpret_cast<float*>(back.data()), count, pieces);
    ASSERT_TRUE(device_->Unpack(kCompute, to, type, bucket.data()).ok());
    ExpectSame(ToHost<float>(back.data(), count), unpacked);
  }

  std::unique_ptr<ComputeDevice> device_;
  std::unique_ptr<DeviceEvent> event_;
};

TEST_F(DeviceContract, WhatIsCopiedThereAndBackIsTheSame) {
  const std::vector<float> values = Values(100'000);
  const DeviceBuffer memory = OnDevice(values);
  ExpectSame(ToHost<float>(memory.data(), values.size()), values);
}

TEST_F(DeviceContract, SharedMemoryIsPinnedWhereItIs) {
  const auto own = *MemorySegment::Create(1 << 20);
  const auto peers = *MemorySegment::OfPeer(own->fd());  // as a worker has a shard's
  const size_t bytes = size_t{1} << 18;
  {
    const auto to_write = device_->Pin("a test's own", {own->data(), bytes}, /*read_only=*/false);
    ASSERT_TRUE(to_write.ok()) << to_write.status();
    const auto to_read =
        device_->Pin("a test's peer's", {peers->data(), bytes}, /*read_only=*/true);
    ASSERT_TRUE(to_read.ok()) << to_read.status();
    const std::vector<float> values = Values(bytes / sizeof(float));
    const DeviceBuffer from = OnDevice(values);
    ASSERT_TRUE(device_->CopyToHost(kCompute, own->data(), from.data(), bytes).ok());
    Finish(kCompute);
    const DeviceBuffer to = OnDevice(std::vector<float>(values.size()));
    ASSERT_TRUE(device_->CopyToDevice(kCompute, to.data(), peers->data(), bytes).ok());
    Finish(kCompute);
    ExpectSame(ToHost<float>(to.data(), values.size()), values);
  }
  // Again, now that it is not any more.
  EXPECT_TRUE(device_->Pin("a test's own", {own->data(), bytes}, /*read_only=*/false).ok());
}

// As values come from a shard's slices.
TEST_F(DeviceContract, ManyPartsAreCopiedToTheDeviceTogether) {
  constexpr size_t kSegment = size_t{1} << 20;
  const auto own = *MemorySegment::Create(2 * kSegment);
  const auto peers = *MemorySegment::OfPeer(own->fd());
  const DeviceBuffer pinned = *device_->AllocatePinned("test", kSegment);
  const std::vector<float> values = Values(3 * kSegment / sizeof(float));
  std::memcpy(own->data(), values.data(), 2 * kSegment);
  std::memcpy(pinned.data(), values.data() + 2 * kSegment / sizeof(float), kSegment);
  std::vector<DeviceBuffer> pins;
  std::vector<ComputeDevice::HostPart> parts;
  const DeviceBuffer to = OnDevice(std::vector<float>(values.size()));
  // Of all sizes, each of a segment's halves pinned by itself, the last ones first.
  for (size_t at = 0, size = 4; at < 3 * kSegment; size = 2 * size + 4) {
    const size_t in_segment = at % kSegment;
    const size_t bytes = std::min(size, kSegment - in_segment);
    if (in_segment == 0 && at < 2 * kSegment) {
      pins.push_back(*device_->Pin("peer's", {peers->data() + at, kSegment}, /*read_only=*/true));
    }
    const std::byte* const from =
        at < 2 * kSegment ? peers->data() + at : pinned.data() + in_segment;
    parts.insert(parts.begin(), {to.data() + at, {from, bytes}});
    at += bytes;
  }
  ASSERT_GE(parts.size(), 20u);
  for (const StreamId stream : {StreamId::kToDevice, kCompute}) {
    ASSERT_TRUE(device_->Clear(stream, to.data(), to.size()).ok());
    const absl::Status status = device_->CopyPartsToDevice(stream, parts);
    ASSERT_TRUE(status.ok()) << status;
    Finish(stream);
    ExpectSame(ToHost<float>(to.data(), values.size()), values);
    ASSERT_TRUE(device_->CopyPartsToDevice(stream, absl::MakeSpan(parts).first(1)).ok());
    ASSERT_TRUE(device_->CopyPartsToDevice(stream, {}).ok());
    Finish(stream);
  }
}

TEST_F(DeviceContract, MemoryIsAlignedAndCounted) {
  const ComputeDevice::Memory before = *device_->memory();
  EXPECT_GT(before.total, 0);
  const DeviceBuffer memory = *device_->Allocate("test", 8 << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 256, 0);
  EXPECT_LE(device_->memory()->free + (8 << 20), before.free);
}

TEST_F(DeviceContract, NoRoomNamesTheTensorTheBytesAndTheDevice) {
  const size_t bytes = size_t{1} << 50;
  const auto memory = device_->Allocate("decoder.weight", bytes);
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(memory.status().message()), HasSubstr("decoder.weight"));
  EXPECT_THAT(std::string(memory.status().message()), HasSubstr(std::to_string(bytes)));
  EXPECT_THAT(std::string(memory.status().message()), HasSubstr(device_->name()));
  EXPECT_TRUE(device_->Allocate("small", 16).ok()) << "the device goes on";
}

TEST_F(DeviceContract, PackingAndUnpackingAreTheReferences) {
  PackAndCompare<float>(BucketType::kFloat32, 50'000, 7, 0.125f);
  PackAndCompare<uint16_t>(BucketType::kBFloat16, 50'000, 7, 1.0f);
  PackAndCompare<uint16_t>(BucketType::kBFloat16, 50'000, 7, 1.0f / 3);
}

TEST_F(DeviceContract, MorePiecesThanALaunchTakesAndEmptyOnesAreMoved) {
  PackAndCompare<float>(BucketType::kFloat32, 3'000, 200, 1.0f);
  PackAndCompare<float>(BucketType::kFloat32, 3, 200, 1.0f);
}

TEST_F(DeviceContract, OneLargePieceIsMovedWhole) {
  PackAndCompare<float>(BucketType::kFloat32, 9'000'001, 1, 2.0f);
}

TEST_F(DeviceContract, UnscalingTellsInfinitiesAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float wrong : {infinity, -infinity, std::nanf(""), 1.0f}) {
    std::vector<float> values(70'000, 3.0f);
    values[69'999] = wrong;
    const DeviceBuffer memory = OnDevice(values);
    const DeviceBuffer bad = OnDevice(std::vector<uint32_t>{0});
    ASSERT_TRUE(device_
                    ->Unscale(kCompute, reinterpret_cast<float*>(memory.data()), values.size(),
                              0.5f, reinterpret_cast<uint32_t*>(bad.data()))
                    .ok());
    uint32_t expected = 0;
    UnscaleReference(values.data(), values.size(), 0.5f, &expected);
    ExpectSame(ToHost<float>(memory.data(), values.size()), values);
    EXPECT_EQ(ToHost<uint32_t>(bad.data(), 1).front(), expected);
    EXPECT_EQ(expected, std::isfinite(wrong) ? 0 : 1);
  }
}

TEST_F(DeviceContract, UnscalingLeavesWhatWasFoundBefore) {
  const DeviceBuffer memory = OnDevice(std::vector<float>{1.0f});
  const DeviceBuffer bad = OnDevice(std::vector<uint32_t>{1});
  ASSERT_TRUE(device_
                  ->Unscale(kCompute, reinterpret_cast<float*>(memory.data()), 1, 1.0f,
                            reinterpret_cast<uint32_t*>(bad.data()))
                  .ok());
  EXPECT_EQ(ToHost<uint32_t>(bad.data(), 1).front(), 1);
}

// Within memory of the host's own, as a session's gradients are.
TEST_F(DeviceContract, WhatIsNotZeroIsBroughtToTheHost) {
  std::mt19937 random(9);
  const auto segment = *MemorySegment::Create(16 << 20);
  const DeviceBuffer pinned =
      *device_->Pin("test", {segment->data(), segment->bytes()}, /*read_only=*/false);
  for (const uint64_t count : {1u, 1000u, 1024u, 1025u, 70'000u, 3'000'001u}) {
    const uint64_t blocks = (count + kNonzeroBlock - 1) / kNonzeroBlock;
    std::byte* const host = segment->data() + 64 + count % 7 * sizeof(float);
    std::byte* const nonzero = segment->data() + segment->bytes() - blocks - 1;
    std::vector<float> expected(count, 5.0f);
    std::vector<uint8_t> expected_nonzero(blocks, 1);
    // What is said to be zero there, and is, is not touched; so it shows if it was not.
    expected_nonzero[0] = 0;
    device_->HostWrites(host, count * sizeof(float));
    device_->HostWrites(nonzero, blocks);
    std::memcpy(host, expected.data(), count * sizeof(float));
    std::memcpy(nonzero, expected_nonzero.data(), blocks);
    for (int turn = 0; turn < 4; ++turn) {
      std::vector<float> values(count, 0.0f);
      for (uint64_t k = 0; k <= blocks / 8; ++k) {
        const float some[] = {1.5f, -0.0f, std::numeric_limits<float>::quiet_NaN()};
        const uint64_t at = random() % count;
        if (turn != 2 && at >= kNonzeroBlock) values[at] = some[random() % 3];
      }
      const DeviceBuffer tensor = OnDevice(values);
      CopyNonzeroReference(expected.data(), values.data(), count, expected_nonzero.data());
      const absl::Status copied = device_->CopyNonzero(
          kCompute, reinterpret_cast<float*>(host), reinterpret_cast<const float*>(tensor.data()),
          count, reinterpret_cast<uint8_t*>(nonzero));
      ASSERT_TRUE(copied.ok()) << copied;
      Finish(kCompute);
      device_->HostReads(host, count * sizeof(float));
      device_->HostReads(nonzero, blocks);
      std::vector<float> got(count);
      std::memcpy(got.data(), host, count * sizeof(float));
      ExpectSame(got, expected);
      EXPECT_EQ(got[0], 5);
      std::fill_n(got.begin(), std::min(count, kNonzeroBlock), 0.0f);
      ExpectSame(got, values);
      EXPECT_EQ(std::memcmp(nonzero, expected_nonzero.data(), blocks), 0);
    }
  }
}

TEST_F(DeviceContract, AnEventPutsTheWorkOfTwoStreamsInOrder) {
  const size_t count = 4 << 20;
  std::vector<float> values(count, 1.0f);
  const DeviceBuffer tensor = OnDevice(values);
  const DeviceBuffer bucket = OnDevice(std::vector<float>(count));
  const DeviceBuffer pinned = *device_->AllocatePinned("test", count * sizeof(float));
  const Piece piece = {reinterpret_cast<float*>(tensor.data()), 0, count};
  for (int turn = 1; turn <= 5; ++turn) {
    const auto scale = static_cast<float>(turn);
    ASSERT_TRUE(device_->Pack(kCompute, {piece}, scale, BucketType::kFloat32, bucket.data()).ok());
    ASSERT_TRUE(device_->Record(*event_, kCompute).ok());
    ASSERT_TRUE(device_->Wait(StreamId::kToHost, *event_).ok());
    ASSERT_TRUE(
        device_->CopyToHost(StreamId::kToHost, pinned.data(), bucket.data(), count * sizeof(float))
            .ok());
    Finish(StreamId::kToHost);
    float last = 0;
    std::memcpy(&last, pinned.data() + (count - 1) * sizeof(float), sizeof last);
    EXPECT_EQ(last, scale);
  }
}

TEST_F(DeviceContract, ValuesComeAndGradientsGoThroughThePaths) {
  constexpr size_t kCount = 300'000;
  constexpr size_t kBytes = kCount * sizeof(float);
  constexpr size_t kBuckets = 5;
  auto in = ParameterPath::Make(*device_, {kBytes, 2, 3});
  auto out = GradientPath::Make(*device_, {kBytes, 2, kBuckets});
  ASSERT_TRUE(in.ok() && out.ok());
  std::vector<DeviceBuffer> tensors;
  for (size_t i = 0; i < kBuckets; ++i) tensors.push_back(*device_->Allocate("tensor", kBytes));
  for (int step = 1; step <= 4; ++step) {
    // The value of bucket i is 10 * step + i; it comes back times two.
    const auto value = [&](size_t i) {
      return static_cast<float>(10 * step) + static_cast<float>(i);
    };
    for (size_t i = 0; i < kBuckets; ++i) {
      const Piece piece = {reinterpret_cast<float*>(tensors[i].data()), 0, kCount};
      const auto fill = [&](absl::Span<std::byte> bytes) {
        const std::vector<float> values(kCount, value(i));
        std::memcpy(bytes.data(), values.data(), bytes.size());
        return absl::OkStatus();
      };
      ASSERT_TRUE((*in)->Bring({piece}, BucketType::kFloat32, kBytes, Soon(), fill).ok());
    }
    for (size_t i = 0; i < kBuckets; ++i) {
      const Piece piece = {reinterpret_cast<float*>(tensors[i].data()), 0, kCount};
      ASSERT_TRUE((*out)->Send(i, {piece}, 2, BucketType::kFloat32, kBytes, Soon()).ok());
    }
    size_t came = 0;
    const auto take = [&](size_t bucket, absl::Span<const std::byte> bytes) {
      std::vector<float> values(kCount);
      std::memcpy(values.data(), bytes.data(), bytes.size());
      EXPECT_EQ(values, std::vector<float>(kCount, 2 * value(bucket))) << "step " << step;
      ++came;
      return absl::OkStatus();
    };
    while (true) {
      const auto more = (*out)->Deliver(Soon(), take);
      ASSERT_TRUE(more.ok()) << more.status();
      if (!*more) break;
    }
    EXPECT_EQ(came, kBuckets);
  }
}

TEST_F(DeviceContract, TimedEventsSayHowLongAStreamWasAtWork) {
  const size_t bytes = 64 << 20;
  const auto memory = device_->Allocate("test", bytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  std::vector<std::unique_ptr<DeviceEvent>> events;
  for (int i = 0; i < 3; ++i) events.push_back(*device_->MakeTimedEvent());
  ASSERT_TRUE(device_->Record(*events[0], kCompute).ok());
  ASSERT_TRUE(device_->Record(*events[1], kCompute).ok());
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(device_->Clear(kCompute, memory->data(), bytes).ok());
  ASSERT_TRUE(device_->Record(*events[2], kCompute).ok());
  ASSERT_TRUE(device_->Await(*events[2], Soon()).ok());
  const auto nothing = device_->Between(*events[0], *events[1]);
  const auto clearing = device_->Between(*events[1], *events[2]);
  const auto both = device_->Between(*events[0], *events[2]);
  ASSERT_TRUE(nothing.ok() && clearing.ok() && both.ok());
  EXPECT_GE(*nothing, absl::ZeroDuration());
  // No memory writes a terabyte in a twentieth of a second.
  EXPECT_GT(*clearing, absl::Microseconds(25));
  EXPECT_LT(absl::AbsDuration(*both - *nothing - *clearing), absl::Microseconds(10));
}

}  // namespace
}  // namespace parley
