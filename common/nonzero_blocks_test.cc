#include "common/nonzero_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace parley {
namespace {

template <class T>
absl::Span<const std::byte> BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

TEST(NonzeroBlocksTest, WhatIsPackedIsAllThatIsNotZero) {
  std::mt19937 random(1);
  int found = 0;
  for (int round = 0; round < 500; ++round) {
    const uint64_t elements = 1 + random() % 20'000;
    std::vector<float> values(elements, 0);
    for (size_t i = random() % 6; i > 0; --i) {
      const float some[] = {1, -0.0F, 1e-45F};
      values[random() % elements] = some[random() % 3];
    }
    const std::string nonzero = FindNonzero(BytesOf(values), sizeof(float));
    if (nonzero.empty()) continue;
    ++found;
    const std::optional<uint64_t> there = NonzeroElements(nonzero, elements);
    ASSERT_TRUE(there.has_value());
    std::string packed;
    PackNonzero(BytesOf(values), sizeof(float), nonzero, &packed);
    ASSERT_EQ(packed.size(), *there * sizeof(float));
    std::vector<float> unpacked(elements, 0);
    size_t taken = 0;
    uint64_t covered = 0;
    ForRuns(nonzero, 0, elements, [&](uint64_t begin, uint64_t end, bool holds) {
      ASSERT_EQ(begin, covered);
      covered = end;
      ASSERT_EQ(AreZero(nonzero, begin, end), !holds);
      if (end < elements) {
        ASSERT_EQ(AreZero(nonzero, begin, end + 1), false);
      }
      if (!holds) return;
      std::memcpy(unpacked.data() + begin, packed.data() + taken, (end - begin) * sizeof(float));
      taken += (end - begin) * sizeof(float);
    });
    ASSERT_EQ(covered, elements);
    // The same of a part.
    const uint64_t first = random() % elements;
    const uint64_t last = first + 1 + random() % (elements - first);
    covered = first;
    ForRuns(nonzero, first, last, [&](uint64_t begin, uint64_t end, bool holds) {
      ASSERT_EQ(begin, covered);
      covered = end;
      ASSERT_EQ(AreZero(nonzero, begin, end), !holds);
      ASSERT_EQ(HoldAll(nonzero, begin, end), holds);
      ASSERT_EQ(HoldAll(nonzero, first, last), holds && begin == first && end == last);
    });
    ASSERT_EQ(covered, last);
    ASSERT_EQ(std::memcmp(unpacked.data(), values.data(), elements * sizeof(float)), 0);
  }
  EXPECT_GT(found, 200);
}

TEST(NonzeroBlocksTest, OnlyWhereAQuarterOfItIsZerosItIsWorthWhile) {
  std::vector<double> values(8 * kZeroBlock, 1);
  EXPECT_EQ(FindNonzero(BytesOf(values), sizeof(double)), "");
  std::fill_n(values.begin() + 3 * kZeroBlock, kZeroBlock, 0);
  EXPECT_EQ(FindNonzero(BytesOf(values), sizeof(double)), "");
  std::fill_n(values.begin() + 5 * kZeroBlock, kZeroBlock, 0);
  EXPECT_EQ(FindNonzero(BytesOf(values), sizeof(double)), std::string(1, '\xd7'));
  values.assign(values.size(), 0);
  EXPECT_EQ(FindNonzero(BytesOf(values), sizeof(double)), std::string(1, '\0'));
  values.resize(3 * kZeroBlock);
  EXPECT_EQ(FindNonzero(BytesOf(values), sizeof(double)), "") << "a few blocks";
  EXPECT_EQ(FindNonzero({}, sizeof(double)), "");
}

TEST(NonzeroBlocksTest, WhatIsSaidIsWorthWhileAsWhatIsFound) {
  EXPECT_TRUE(AreWorthLeavingOut("\x3f", 8 * kZeroBlock));
  EXPECT_FALSE(AreWorthLeavingOut("\x7f", 8 * kZeroBlock));
  EXPECT_TRUE(AreWorthLeavingOut(std::string(1, '\0'), 3));
  EXPECT_FALSE(AreWorthLeavingOut("\x01", 3));
}

TEST(NonzeroBlocksTest, WhatIsOfAnotherSizeIsRefused) {
  EXPECT_EQ(NonzeroElements(std::string(1, '\x83'), 8 * kZeroBlock - 1000),
            2 * kZeroBlock + kZeroBlock - 1000);
  EXPECT_EQ(NonzeroElements("", 0), 0u);
  EXPECT_EQ(NonzeroElements("", 1), std::nullopt);
  EXPECT_EQ(NonzeroElements("a", 8 * kZeroBlock + 1), std::nullopt);
  EXPECT_EQ(NonzeroElements(std::string("a\0", 2), 8 * kZeroBlock), std::nullopt);
  // A bit of a block that there is not.
  EXPECT_EQ(NonzeroElements("\x08", 3 * kZeroBlock), std::nullopt);
}

TEST(NonzeroBlocksTest, ANegativeZeroIsNone) {
  std::vector<float> values(3000, 0);
  EXPECT_TRUE(AllZero(BytesOf(values)));
  EXPECT_TRUE(AllZero({}));
  values.back() = 1e-45F;
  EXPECT_FALSE(AllZero(BytesOf(values)));
  values.back() = -0.0F;
  EXPECT_FALSE(AllZero(BytesOf(values)));
}

}  // namespace
}  // namespace parley
