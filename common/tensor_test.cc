#include "common/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace parley {
namespace {

TEST(Half, EachHalfSurvivesTheWayToFloatAndBack) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = HalfToFloat(static_cast<uint16_t>(half));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    } else {
      ASSERT_EQ(FloatToHalf(value), half) << value;
    }
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t half = 0; half < 0x7bff; ++half) {  // up to the largest but one finite half
    const float low = HalfToFloat(static_cast<uint16_t>(half));
    const float high = HalfToFloat(static_cast<uint16_t>(half + 1));
    const float middle = low + (high - low) / 2;  // exact in float
    ASSERT_EQ(FloatToHalf(middle), half % 2 == 0 ? half : half + 1) << middle;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0F)), half) << middle;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 1e9F)), half + 1) << middle;
  }
  EXPECT_EQ(FloatToHalf(65519.0F), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0F), 0x7c00);  // the tie above the largest half goes to infinity
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::infinity()), 0xfc00);
}

TEST(BFloat16, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t upper = 0; upper < 0x7f7f; ++upper) {
    const float low = BFloat16ToFloat(static_cast<uint16_t>(upper));
    ASSERT_EQ(FloatToBFloat16(low), upper);
    const float high = BFloat16ToFloat(static_cast<uint16_t>(upper + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(FloatToBFloat16(middle), upper % 2 == 0 ? upper : upper + 1) << middle;
  }
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(std::nanf("")))));
}

TEST(DataTypes, NamesAndSizesAgree) {
  for (const DataType dtype : {F32, F64, F16, BF16, I64, I32, U8, BOOL}) {
    EXPECT_EQ(ParseDataType(DataTypeName(dtype)), dtype);
    EXPECT_GT(ElementBytes(dtype), 0U);
  }
  EXPECT_EQ(ParseDataType("F33"), DATA_TYPE_UNSPECIFIED);
  EXPECT_EQ(ElementBytes(static_cast<DataType>(99)), 0U);
}

TEST(Counts, AreZeroForShapesThatCannotBe) {
  TensorSpec tensor;
  tensor.set_dtype(F32);
  EXPECT_EQ(ByteCount(tensor), 4U);  // a scalar
  tensor.add_shape(3);
  tensor.add_shape(5);
  EXPECT_EQ(ByteCount(tensor), 60U);
  tensor.add_shape(-1);
  EXPECT_EQ(ElementCount(tensor), 0U);
  tensor.set_shape(2, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(ElementCount(tensor), 0U);
}

}  // namespace
}  // namespace parley
