#include "common/direct/receive_buffers.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace parley {
namespace {

constexpr size_t kMiB = 1 << 20;

TEST(ReceiveBuffersTest, MemoryIsUsedAgainWhenTheLastThatHasItLetsGo) {
  const auto buffers = std::make_shared<ReceiveBuffers>(8 * kMiB);
  std::shared_ptr<std::byte> first = buffers->Take(kMiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.get()) % ReceiveBuffers::kAlignment, 0u);
  std::byte* const memory = first.get();
  const std::shared_ptr<std::byte> second = first;
  first.reset();
  EXPECT_NE(buffers->Take(kMiB).get(), memory) << "somebody has it";
  EXPECT_EQ(buffers->kept(), kMiB);
}

TEST(ReceiveBuffersTest, ASlightlySmallerOneFitsInASizeOfItsKind) {
  const auto buffers = std::make_shared<ReceiveBuffers>(8 * kMiB);
  std::byte* const memory = buffers->Take(kMiB).get();
  EXPECT_EQ(buffers->Take(kMiB - 100).get(), memory);
  EXPECT_NE(buffers->Take(kMiB / 2).get(), memory) << "half of it would lie idle";
}

TEST(ReceiveBuffersTest, NoMoreIsKeptThanItMay) {
  const auto buffers = std::make_shared<ReceiveBuffers>(2 * kMiB);
  { const auto a = buffers->Take(kMiB), b = buffers->Take(kMiB), c = buffers->Take(kMiB); }
  EXPECT_EQ(buffers->kept(), 2 * kMiB);
}

TEST(ReceiveBuffersTest, ABufferOutlivesThem) {
  auto buffers = std::make_shared<ReceiveBuffers>(2 * kMiB);
  const std::shared_ptr<std::byte> buffer = buffers->Take(kMiB);
  buffers.reset();
  buffer.get()[kMiB - 1] = std::byte{1};
}

TEST(ReceiveBuffersTest, NothingIsSomething) {
  EXPECT_NE(std::make_shared<ReceiveBuffers>(0)->Take(0), nullptr);
}

}  // namespace
}  // namespace parley
