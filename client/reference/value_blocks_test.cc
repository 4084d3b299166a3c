#include "client/reference/value_blocks.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace parley {
namespace {

TEST(ValueBlocksTest, NeverHasMoreThanItMay) {
  ValueBlocks blocks(4 << 16);
  const auto first = blocks.Take(100);
  ASSERT_TRUE(first.ok());
  const auto second = blocks.Take(3 << 16);
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(blocks.Take(100).status()));
  EXPECT_TRUE(blocks.GiveBack(first->number).ok());
  EXPECT_FALSE(blocks.GiveBack(first->number).ok());
  EXPECT_FALSE(blocks.GiveBack(77).ok());
  const auto again = blocks.Take(1 << 16);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->number, first->number);
  EXPECT_TRUE(blocks.TakeGone().empty());
  // A much smaller one does not take it, and another size makes room.
  EXPECT_TRUE(blocks.GiveBack(second->number).ok());
  const auto third = blocks.Take(1 << 16);
  ASSERT_TRUE(third.ok());
  EXPECT_NE(third->number, second->number);
  EXPECT_EQ(blocks.TakeGone(), std::vector<uint32_t>{second->number});
  EXPECT_EQ(blocks.bytes(), size_t{2} << 16);
}

}  // namespace
}  // namespace parley
