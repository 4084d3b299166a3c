#include "common/tensor.h"

#include <array>
#include <bit>
#include <limits>

namespace parley {
namespace {

struct TypeRow {
  DataType dtype;
  std::string_view name;
  size_t bytes;
};

constexpr std::array<TypeRow, 8> kTypes = {{{F32, "F32", 4},
                                            {F64, "F64", 8},
                                            {F16, "F16", 2},
                                            {BF16, "BF16", 2},
                                            {I64, "I64", 8},
                                            {I32, "I32", 4},
                                            {U8, "U8", 1},
                                            {BOOL, "BOOL", 1}}};

}  // namespace

size_t ElementBytes(DataType dtype) {
  for (const TypeRow& row : kTypes) {
    if (row.dtype == dtype) return row.bytes;
  }
  return 0;
}

bool IsFloat(DataType dtype) {
  return dtype == F32 || dtype == F64 || dtype == F16 || dtype == BF16;
}

bool IsTrainable(DataType dtype) { return dtype == F32 || dtype == F64; }

std::string_view DataTypeName(DataType dtype) {
  for (const TypeRow& row : kTypes) {
    if (row.dtype == dtype) return row.name;
  }
  return "?";
}

DataType ParseDataType(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.dtype;
  }
  return DATA_TYPE_UNSPECIFIED;
}

uint64_t ElementCount(const TensorSpec& tensor) {
  uint64_t count = 1;
  for (const int64_t size : tensor.shape()) {
    if (size < 0) return 0;
    if (size != 0 &&
        count > std::numeric_limits<uint64_t>::max() / 16 / static_cast<uint64_t>(size)) {
      return 0;
    }
    count *= static_cast<uint64_t>(size);
  }
  return count;
}

uint64_t ByteCount(const TensorSpec& tensor) {
  return ElementCount(tensor) * ElementBytes(tensor.dtype());
}

float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in float
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN
  if (magnitude >= 0x47800000) return sign | 0x7c00;  // 2^16 and above: infinity
  if (magnitude < 0x38800000) {                       // below 2^-14: subnormal
    // Adding 0.5 shifts the value so that float's own rounding is that of the subnormal half.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000);
  }
  const uint32_t round = 0xfff + ((magnitude >> 13) & 1);
  return sign | static_cast<uint16_t>((magnitude - 0x38000000 + round) >> 13);
}

}  // namespace parley
