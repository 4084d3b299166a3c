#include "server/parameter_shard/buffer_candidates.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "common/tensor.h"

namespace parley {
namespace {

template <class T>
std::string_view Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class T>
void Offer(BufferCandidates& candidates, uint32_t contributor, const std::vector<T>& values,
           uint64_t begin = 0, uint32_t part = 0) {
  const PartRange range{
      .contributor = contributor, .part = part, .begin = begin, .end = begin + values.size()};
  const TensorSlice slice = {0, F32, Bytes(values), nullptr, std::nullopt, nullptr};
  ASSERT_TRUE(candidates.Add(range, slice).ok());
}

template <class T>
absl::Span<std::byte> Room(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)};
}

TEST(BufferCandidates, TheFirstThatHasAnyIsTakenInTheOrderAsked) {
  BufferCandidates candidates(I64);
  Offer<int64_t>(candidates, 2, {20, 21});
  Offer<int64_t>(candidates, 1, {10, 11});
  EXPECT_TRUE(candidates.Has(1, 0));
  EXPECT_FALSE(candidates.Has(0, 0));
  std::vector<int64_t> values = {0, 0};
  candidates.TakeFirst({0, 1, 2}, Room(values));
  EXPECT_EQ(values, (std::vector<int64_t>{10, 11}));
  EXPECT_FALSE(candidates.HasAnyOf({0, 3}));
  candidates.Drop();
  EXPECT_FALSE(candidates.HasAnyOf({1}));
}

TEST(BufferCandidates, WhatIsLentIsLookedAtWhenItHasBeenCopied) {
  BufferCandidates candidates(F32);
  const std::vector<float> values = {1};
  std::atomic<uint64_t> count = 5;
  const TensorSlice lent = {0, F32, Bytes(values), nullptr, Loan{&count, 4}, nullptr};
  const absl::Status added = candidates.Add({0, 0, 0, 1}, lent);
  EXPECT_TRUE(absl::IsAborted(added)) << added;
  EXPECT_FALSE(candidates.Has(0, 0));
  EXPECT_FALSE(candidates.HasAnyOf({0}));
  count = 4;
  EXPECT_TRUE(candidates.Add({0, 0, 0, 1}, lent).ok());
  EXPECT_TRUE(candidates.HasAnyOf({0}));
}

TEST(BufferCandidates, PartsOfOneComeTogether) {
  BufferCandidates candidates(F32);
  Offer<float>(candidates, 0, {3}, /*begin=*/2, /*part=*/1);
  Offer<float>(candidates, 0, {1, 2});
  std::vector<float> values(3);
  candidates.TakeFirst({0}, Room(values));
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
}

TEST(BufferCandidates, TheMeanIsWeighted) {
  BufferCandidates candidates(F32);
  Offer<float>(candidates, 0, {1, 8});
  Offer<float>(candidates, 1, {3, 0});
  Offer<float>(candidates, 2, {100, 100});
  std::vector<float> values = {-7, -7};
  candidates.Average({0, 1, 5}, {1, 0.5, 1}, Room(values));
  EXPECT_EQ(values[0], static_cast<float>(2.5 / 1.5));
  EXPECT_EQ(values[1], static_cast<float>(8 / 1.5));
  EXPECT_TRUE(candidates.HasAnyOf({5, 2}));
  EXPECT_FALSE(candidates.HasAnyOf({5}));
}

TEST(BufferCandidates, TheMeanOfEqualValuesIsThatValueInEveryFloatType) {
  const double third = 1.0 / 3;
  const std::vector<double> weights = {1, 0.37, 0.91};
  const auto expect_same = [&](DataType dtype, auto value) {
    using T = decltype(value);
    BufferCandidates candidates(dtype);
    for (const uint32_t contributor : {0, 1, 2}) Offer<T>(candidates, contributor, {value});
    std::vector<T> values(1);
    candidates.Average({0, 1, 2}, weights, Room(values));
    EXPECT_EQ(values[0], value) << DataTypeName(dtype);
  };
  expect_same(F32, static_cast<float>(third));
  expect_same(F32, std::numeric_limits<float>::max());
  expect_same(F16, FloatToHalf(static_cast<float>(third)));
  expect_same(BF16, FloatToBFloat16(static_cast<float>(third)));
  BufferCandidates candidates(F64);
  for (const uint32_t contributor : {0, 1}) Offer<double>(candidates, contributor, {third});
  std::vector<double> values(1);
  candidates.Average({0, 1}, {1, 1}, Room(values));
  EXPECT_EQ(values[0], third);
}

}  // namespace
}  // namespace parley
