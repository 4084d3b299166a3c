#include "client/contribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "common/tensor.h"

namespace parley {
namespace {

template <class T>
std::vector<T> Weighed(DataType dtype, const std::vector<T>& gradient, double weight) {
  std::string out = "what was there before";
  Weigh(dtype,
        absl::MakeSpan(reinterpret_cast<const std::byte*>(gradient.data()),
                       gradient.size() * sizeof(T)),
        weight, &out);
  std::vector<T> result(out.size() / sizeof(T));
  std::memcpy(result.data(), out.data(), out.size());
  return result;
}

TEST(Weigh, MultipliesEachFloatTypeInItsPrecision) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 100; ++round) {
    const float g = normal(random);
    const double weight = std::uniform_real_distribution<double>(0, 1)(random);
    const float factor = static_cast<float>(weight);
    EXPECT_EQ(Weighed<float>(F32, {g, 0.0f}, weight)[0], g * factor);
    EXPECT_EQ(Weighed<double>(F64, {g}, weight)[0], static_cast<double>(g) * weight);
    const uint16_t half = FloatToHalf(g);
    EXPECT_EQ(Weighed<uint16_t>(F16, {half}, weight)[0], FloatToHalf(HalfToFloat(half) * factor));
    const uint16_t bfloat = FloatToBFloat16(g);
    EXPECT_EQ(Weighed<uint16_t>(BF16, {bfloat}, weight)[0],
              FloatToBFloat16(BFloat16ToFloat(bfloat) * factor));
  }
}

TEST(Weigh, AWeightOfOneAndIntegersKeepTheBytes) {
  const std::vector<uint32_t> nans = {0x7fc00123, 0xffc00001, 0x7f800000};
  EXPECT_EQ(Weighed<uint32_t>(F32, nans, 1), nans);
  const std::vector<int64_t> counts = {-1, 1'000'000'007};
  EXPECT_EQ(Weighed<int64_t>(I64, counts, 0.5), counts);
}

TEST(Narrow, RoundsEachProductOnceToTheWireType) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  std::vector<float> gradient(1003);
  for (float& g : gradient) g = normal(random) * std::exp2(static_cast<float>(random() % 40) - 20);
  gradient[0] = std::numeric_limits<float>::quiet_NaN();
  gradient[1] = -std::numeric_limits<float>::infinity();
  gradient[2] = std::numeric_limits<float>::max();  // rounds to infinity
  gradient[3] = 1.00390625F;                        // half-way between two numbers of BF16
  gradient[4] = -0.0F;
  const auto bytes = absl::MakeSpan(reinterpret_cast<const std::byte*>(gradient.data()),
                                    gradient.size() * sizeof(float));
  for (const double weight : {1.0, 0.25, 0.3}) {
    for (const DataType narrow : {BF16, F16}) {
      std::string out = "what was there before";
      Narrow(narrow, bytes, weight, &out);
      ASSERT_EQ(out.size(), gradient.size() * 2);
      for (size_t i = 0; i < gradient.size(); ++i) {
        uint16_t element = 0;
        std::memcpy(&element, out.data() + 2 * i, 2);
        const float product = gradient[i] * static_cast<float>(weight);
        EXPECT_EQ(element, narrow == BF16 ? FloatToBFloat16(product) : FloatToHalf(product)) << i;
      }
    }
  }
}

}  // namespace
}  // namespace parley
