#include "worker/device/peer_outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <utility>

#include "common/clock/steady_now.h"
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
    ASSERT_TRUE(receiver.Await(*copied, SteadyNow() + absl::Seconds(10)).ok());
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

TEST(PeerOutbox, WhatAUnitSendsInManyTurnsTakesNoMoreThanIsReadAtATime) {
  FakeDevice device;
  PeerOutbox outbox(device, "activations", 4096);
  constexpr uint64_t kReadAtATime = 3;
  constexpr size_t kBytes = 1000;
  std::deque<std::pair<uint64_t, std::byte*>> read;
  outbox.BeginUnit();
  size_t allocations = 0;
  for (uint64_t turn = 0; turn < 100; ++turn) {
    const uint64_t first_read = turn < kReadAtATime ? 0 : turn - kReadAtATime + 1;
    outbox.BeginTurn(turn, first_read);
    while (!read.empty() && read.front().first < first_read) read.pop_front();
    for (int tensor = 0; tensor < 2; ++tensor) {
      std::byte* const memory = outbox.Take(kBytes)->memory;
      for (const auto& [other_turn, other] : read) {
        EXPECT_GE(std::abs(memory - other), static_cast<std::ptrdiff_t>(kBytes))
            << "of turn " << turn << " lies where turn " << other_turn << " is read";
      }
      read.emplace_back(turn, memory);
    }
    if (turn == 10) allocations = device.allocations();
  }
  EXPECT_EQ(device.allocations(), allocations);
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
