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

TEST(Narrow, RoundsEachElementOnceToTheWireType) {
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
  for (const DataType narrow : {BF16, F16}) {
    std::string out = "what was there before";
    Narrow(narrow, bytes, &out);
    ASSERT_EQ(out.size(), gradient.size() * 2);
    for (size_t i = 0; i < gradient.size(); ++i) {
      uint16_t element = 0;
      std::memcpy(&element, out.data() + 2 * i, 2);
      EXPECT_EQ(element, narrow == BF16 ? FloatToBFloat16(gradient[i]) : FloatToHalf(gradient[i]))
          << i;
    }
  }
}

}  // namespace
}  // namespace parley
