#include "worker/device/pinned_pool.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "worker/device/fake_device.h"

namespace parley {
namespace {

TEST(PinnedPool, WhatIsHeldIsNotGivenAgainAndWhatIsLetGoOfIs) {
  FakeDevice device;
  PinnedPool pool(device, "activations");
  auto first = *pool.Take(1000);
  auto second = *pool.Take(900);
  EXPECT_NE(first, second);
  EXPECT_EQ(device.allocations(), 2);
  const std::byte* const was = first.get();
  const std::shared_ptr<std::byte> also = first;
  first.reset();
  EXPECT_NE((*pool.Take(1000)).get(), was) << "somebody still holds it";
}

TEST(PinnedPool, ASteadyStateAllocatesNothing) {
  FakeDevice device;
  PinnedPool pool(device, "activations");
  for (int step = 0; step < 5; ++step) {
    const auto one = *pool.Take(1000);
    const auto other = *pool.Take(5000);
    const auto last = *pool.Take(700);  // as large as the first
    EXPECT_EQ(device.allocations(), 3);
  }
}

TEST(PinnedPool, LittleMoreIsPinnedThanWasAskedFor) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100}, size_t{4097}, size_t{65} << 20}) {
    FakeDevice device;
    PinnedPool pool(device, "activations");
    const size_t before = device.memory()->free;
    const auto piece = *pool.Take(bytes);
    const size_t pinned = before - device.memory()->free;
    EXPECT_GE(pinned, bytes);
    EXPECT_LE(pinned, std::max<size_t>(16, bytes + bytes / 4));
  }
}

TEST(PinnedPool, WhatIsTooSmallIsNotGiven) {
  FakeDevice device;
  PinnedPool pool(device, "activations");
  std::shared_ptr<std::byte> piece = *pool.Take(10);
  const std::byte* const small = piece.get();
  piece.reset();
  EXPECT_NE((*pool.Take(1000)).get(), small);
  EXPECT_EQ((*pool.Take(16)).get(), small);
}

TEST(PinnedPool, APieceMayOutliveThePool) {
  FakeDevice device;
  std::shared_ptr<std::byte> kept;
  {
    PinnedPool pool(device, "activations");
    kept = *pool.Take(10);
  }
  kept.get()[9] = std::byte{1};
}

TEST(PinnedPool, NoRoomSaysWhatFor) {
  FakeDevice device({.memory_bytes = 100});
  PinnedPool pool(device, "activations");
  EXPECT_EQ(pool.Take(1000).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace parley
