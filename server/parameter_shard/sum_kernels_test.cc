#include "server/parameter_shard/sum_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace parley {
namespace {

// Of all sizes, with zeros of both signs, subnormals and infinities among them.
std::vector<float> Numbers(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    number = std::ldexp(normal(random), static_cast<int>(random() % 80) - 40);
    switch (random() % 32) {
      case 0:
        number = 0.0F;
        break;
      case 1:
        number = -0.0F;
        break;
      case 2:
        number = std::numeric_limits<float>::denorm_min() * static_cast<float>(random() % 1000);
        break;
      case 3:
        number = std::numeric_limits<float>::infinity();
        break;
      default:
        break;
    }
  }
  return numbers;
}

void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i])) << i;
  }
}

TEST(SumKernelsTest, AddendsAreAddedOneAfterTheOtherInTheirOrder) {
  std::mt19937 random(3);
  for (size_t addends = 0; addends <= 11; ++addends) {
    for (const size_t count : {0, 1, 7, 1000}) {
      std::vector<std::vector<float>> values;
      std::vector<const float*> pointers;
      for (size_t i = 0; i < addends; ++i) values.push_back(Numbers(count, random));
      for (const auto& each : values) pointers.push_back(each.data());
      for (const bool fresh : {false, true}) {
        std::vector<float> sum = Numbers(count, random);
        std::vector<float> expected = fresh ? std::vector<float>(count, -0.0F) : sum;
        for (const auto& each : values) {
          for (size_t i = 0; i < count; ++i) expected[i] += each[i];
        }
        AddInOrder(pointers, fresh, absl::MakeSpan(sum));
        ExpectSameBits(sum, expected);
      }
    }
  }
}

TEST(SumKernelsTest, AFreshSumOfOneIsThatOneBitForBit) {
  std::mt19937 random(4);
  const std::vector<float> one = Numbers(500, random);
  std::vector<float> sum(500, 9);
  AddInOrder({one.data()}, /*fresh=*/true, absl::MakeSpan(sum));
  ExpectSameBits(sum, one);
}

TEST(SumKernelsTest, QuotientsAreThoseOfDivisionWhateverTheDivisor) {
  std::mt19937 random(5);
  const std::vector<float> values = Numbers(3000, random);
  for (const float divisor : {1.0F, 2.0F, 3.0F, 4.0F, 0.75F, 0.5F, 7.0F, 1024.0F, 1e-30F, 1e30F,
                              0x1p120F, std::numeric_limits<float>::denorm_min()}) {
    std::vector<float> expected(values.size());
    for (size_t i = 0; i < values.size(); ++i) expected[i] = values[i] / divisor;
    std::vector<float> out(values.size());
    DivideBy(divisor, values.data(), absl::MakeSpan(out));
    ExpectSameBits(out, expected);
    std::vector<float> in_place = values;
    DivideBy(divisor, in_place.data(), absl::MakeSpan(in_place));
    ExpectSameBits(in_place, expected);
  }
}

}  // namespace
}  // namespace parley
