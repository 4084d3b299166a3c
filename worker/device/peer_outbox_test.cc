#include "worker/device/peer_outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "absl/time/clock.h"
#include "worker/device/fake_device.h"

namespace parley {
namespace {

using ::testing::IsEmpty;

TEST(PeerOutbox, AnotherDeviceCopiesWhatLiesThere) {
  FakeDevice sender;
  FakeDevice receiver;
  PeerOutbox outbox(sender, "activations", 4096);
  for (const size_t bytes : {size_t{1000}, size_t{3000}, size_t{10000}}) {
    const PeerOutbox::Place place = *outbox.Take(bytes);
    EXPECT_LE(place.offset + bytes, place.block_bytes);
    std::memset(place.memory, static_cast<int>(bytes % 100), bytes);
    const DeviceBuffer opened = *receiver.OpenShared(place.handle);
    const DeviceBuffer there = *receiver.Allocate("input", bytes);
    ASSERT_TRUE(
        receiver.CopyOnDevice(StreamId::kCompute, there.data(), opened.data() + place.offset, bytes)
            .ok());
    const auto copied = *receiver.MakeEvent();
    ASSERT_TRUE(receiver.Record(*copied, StreamId::kCompute).ok());
    ASSERT_TRUE(receiver.Await(*copied, absl::Now() + absl::Seconds(10)).ok());
    EXPECT_EQ(std::memcmp(there.data(), place.memory, bytes), 0);
  }
  EXPECT_THAT(receiver.violations(), IsEmpty());
  EXPECT_EQ(receiver.copied_between_devices(), 14000);
}

TEST(PeerOutbox, TensorsOfAUnitLieApartAndTheNextUnitsAllocateNothing) {
  FakeDevice device;
  PeerOutbox outbox(device, "activations", 4096);
  size_t allocations = 0;
  for (int unit = 0; unit < 3; ++unit) {
    outbox.BeginUnit();
    std::set<std::byte*> begins;
    for (int tensor = 0; tensor < 10; ++tensor) begins.insert(outbox.Take(1000)->memory);
    EXPECT_EQ(begins.size(), 10);
    for (auto it = begins.begin(); std::next(it) != begins.end(); ++it) {
      EXPECT_GE(*std::next(it) - *it, 1000);
    }
    if (unit == 0) allocations = device.allocations();
    EXPECT_EQ(device.allocations(), allocations);
  }
}

TEST(PeerOutbox, WhatCannotBeReachedIsUnavailable) {
  FakeDevice sender;
  FakeDevice alone({.reaches_others = false});
  PeerOutbox outbox(sender, "activations");
  EXPECT_EQ(alone.OpenShared(outbox.Take(10)->handle).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(sender.OpenShared("nothing").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(sender.OpenShared("1 999999 10").status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace parley
