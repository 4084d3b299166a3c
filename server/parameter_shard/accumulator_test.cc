#include "server/parameter_shard/accumulator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/nonzero_blocks.h"

namespace parley {
namespace {

constexpr uint64_t kElements = 6 * kZeroBlock + 100;

TensorSlice SliceOf(const std::vector<float>& values) {
  TensorSlice slice;
  slice.dtype = F32;
  slice.bytes = TensorBytes::Piece(reinterpret_cast<const std::byte*>(values.data()),
                                   values.size() * sizeof(float));
  return slice;
}

// Without its zeros, in memory of `packed`.
TensorSlice Packed(const std::vector<float>& values, std::string& packed) {
  TensorSlice slice = SliceOf(values);
  const TensorBytes::Piece bytes = slice.bytes.pieces().front();
  slice.nonzero = FindNonzero(bytes, sizeof(float));
  slice.packed = !slice.nonzero.empty();
  if (!slice.packed) return slice;
  PackNonzero(bytes, sizeof(float), slice.nonzero, &packed);
  slice.bytes = std::string_view(packed);
  return slice;
}

std::vector<float> Gradient(std::mt19937& random) {
  std::vector<float> values(kElements, random() % 4 == 0 ? -0.0F : 0.0F);
  for (uint64_t k = random() % 4; k > 0; --k) {
    const uint64_t block = random() % 7 * kZeroBlock;
    for (uint64_t i = block; i < std::min(kElements, block + kZeroBlock); ++i) {
      values[i] = static_cast<float>(random() % 7) - 3;
    }
  }
  return values;
}

std::string BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// In any order, kept apart or not, times any scale, in parts or not.
TEST(GradientAccumulatorTest, ZerosThatAreLeftOutAreAddedBitByBit) {
  std::mt19937 random(3);
  int packed_ones = 0;
  for (int round = 0; round < 400; ++round) {
    const bool apart = random() % 2 == 0;
    const double scale = std::vector<double>{1, 0.25, -2}[random() % 3];
    BufferPool pool;
    GradientAccumulator dense(kElements, apart, &pool);
    GradientAccumulator sparse(kElements, apart, &pool);
    for (const uint32_t contributor : {0, 1, 2}) {
      const std::vector<float> all = Gradient(random);
      const uint64_t middle = random() % 2 == 0 ? kElements : random() % kElements;
      for (const uint32_t part : {0, 1}) {
        const uint64_t begin = part == 0 ? 0 : middle;
        const uint64_t end = part == 0 ? middle : kElements;
        if (begin == end) continue;
        const std::vector<float> values(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                        all.begin() + static_cast<std::ptrdiff_t>(end));
        const PartRange range = {contributor, part, begin, end};
        ASSERT_TRUE(dense.Add(range, SliceOf(values), scale).ok());
        std::string memory;
        const TensorSlice slice = Packed(values, memory);
        packed_ones += slice.packed ? 1 : 0;
        ASSERT_TRUE(sparse.Add(range, slice, scale).ok());
      }
    }
    const std::vector<uint32_t> all = {0, 1, 2};
    ASSERT_EQ(BytesOf(*dense.Sum(all)), BytesOf(*sparse.Sum(all))) << "round " << round;
  }
  EXPECT_GT(packed_ones, 500);
}

TEST(GradientAccumulatorTest, BlocksOfZerosOfOneThatLendsAreNotRead) {
  BufferPool pool;
  std::vector<float> lent(kElements, 7.0F);  // by its rules they would be zeros
  std::vector<float> expected(kElements, 0.0F);
  std::fill_n(lent.begin() + kZeroBlock, kZeroBlock, 3.0F);
  std::fill_n(expected.begin() + kZeroBlock, kZeroBlock, 3.0F);
  const std::atomic<uint64_t> count = 1;
  TensorSlice one = SliceOf(lent);
  one.owner = std::shared_ptr<const void>(lent.data(), [](const void*) {});
  one.loan = Loan{&count, 1};
  one.nonzero = "\x02";
  GradientAccumulator gradient(kElements, /*apart=*/false, &pool);
  ASSERT_TRUE(gradient.Add({0, 0, 0, kElements}, one).ok());
  const auto gathered = gradient.Share();
  for (const size_t tile : {size_t{100}, size_t{kZeroBlock}, size_t{1500}, size_t{kElements}}) {
    for (uint64_t begin = 0; begin < kElements; begin += tile) {
      std::vector<float> own(std::min<size_t>(tile, kElements - begin), -1.0F);
      const auto sum = gathered->SumOf({0}, begin, absl::MakeSpan(own));
      ASSERT_TRUE(sum.ok()) << sum.status();
      ASSERT_TRUE(std::equal(sum->begin(), sum->end(),
                             expected.begin() + static_cast<std::ptrdiff_t>(begin)))
          << tile << " at " << begin;
    }
  }
}

TEST(GradientAccumulatorTest, WhatIsKnownToBeZeroIs) {
  BufferPool pool;
  const std::vector<float> lent(kElements, 0.0F);
  const std::atomic<uint64_t> count = 1;
  TensorSlice zeros = SliceOf(lent);
  zeros.owner = std::shared_ptr<const void>(lent.data(), [](const void*) {});
  zeros.loan = Loan{&count, 1};
  zeros.nonzero = "\x02";
  const std::vector<uint32_t> both = {0, 1};
  {
    GradientAccumulator gradient(kElements, /*apart=*/false, &pool);
    EXPECT_FALSE(gradient.Share()->IsKnownZero(both, 0, 10)) << "the sum of nothing is -0";
    gradient.TakeBack();
    ASSERT_TRUE(gradient.Add({0, 0, 0, kElements}, zeros).ok());
    const auto sum = gradient.Share();
    EXPECT_TRUE(sum->IsKnownZero(both, 0, kZeroBlock));
    EXPECT_FALSE(sum->IsKnownZero(both, 0, kZeroBlock + 1));
    EXPECT_FALSE(sum->IsKnownZero(both, 2 * kZeroBlock - 1, 2 * kZeroBlock));
    EXPECT_TRUE(sum->IsKnownZero(both, 2 * kZeroBlock, kElements));
  }
  {
    // Another one that says nothing, or is of no zeros.
    GradientAccumulator gradient(kElements, /*apart=*/true, &pool);
    ASSERT_TRUE(gradient.Add({0, 0, 0, kElements}, zeros).ok());
    TensorSlice other = zeros;
    other.nonzero.clear();
    ASSERT_TRUE(gradient.Add({1, 0, 0, kElements}, other).ok());
    const auto sum = gradient.Share();
    EXPECT_FALSE(sum->IsKnownZero(both, 0, 10));
    EXPECT_TRUE(sum->IsKnownZero({0}, 0, 10)) << "that one does not count";
  }
  {
    // A part of the range.
    GradientAccumulator gradient(kElements, /*apart=*/false, &pool);
    TensorSlice part = zeros;
    part.nonzero = std::string(1, '\0');
    ASSERT_TRUE(gradient.Add({0, 0, 0, 2 * kZeroBlock}, part).ok());
    const auto sum = gradient.Share();
    EXPECT_TRUE(sum->IsKnownZero(both, 10, 2 * kZeroBlock));
    EXPECT_FALSE(sum->IsKnownZero(both, 10, 2 * kZeroBlock + 1)) << "the rest is -0";
  }
  {
    // One that was copied.
    GradientAccumulator gradient(kElements, /*apart=*/false, &pool);
    ASSERT_TRUE(gradient.Add({0, 0, 0, kElements}, zeros).ok());
    ASSERT_TRUE(gradient.Add({1, 0, 0, kElements}, SliceOf(std::vector<float>(kElements, 1))).ok());
    EXPECT_FALSE(gradient.Share()->IsKnownZero(both, 0, 10));
  }
}

// Of 16 blocks, of which so many hold something, from the first one on or from the last one back.
TEST(MostlyZeroCountTest, IsRefutedAsSoonAsItCannotHoldAnyMore) {
  constexpr size_t kBlocks = 16;
  for (const bool first : {true, false}) {
    for (size_t nonzero = 0; nonzero <= kBlocks; ++nonzero) {
      MostlyZero zeros(kBlocks * kZeroBlock);
      size_t counted = 0;
      for (size_t block = 0; block < kBlocks && !zeros.IsRefuted(); ++block) {
        std::vector<float> values(kZeroBlock);
        const bool holds = first ? block < nonzero : kBlocks - block <= nonzero;
        if (holds) values.back() = 1;
        EXPECT_EQ(zeros.Count(values), !holds);
        ++counted;
      }
      EXPECT_EQ(zeros.holds(), nonzero <= kBlocks / 4) << nonzero;
      const size_t read = first ? kBlocks / 4 + 1 : kBlocks - nonzero + kBlocks / 4 + 1;
      EXPECT_EQ(counted, nonzero <= kBlocks / 4 ? kBlocks : read) << nonzero;
    }
  }
}

}  // namespace
}  // namespace parley
