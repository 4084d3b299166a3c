#ifndef PARLEY_COMMON_TENSOR_H_
#define PARLEY_COMMON_TENSOR_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "proto/types.pb.h"

namespace parley {

// Bytes of one element; 0 for DATA_TYPE_UNSPECIFIED and numbers that are no type.
size_t ElementBytes(DataType dtype);

// F32, F64, F16 or BF16: what gradients can be.
bool IsFloat(DataType dtype);

// F32 or F64: what the shards' optimizers train. Buffers may be of any type.
bool IsTrainable(DataType dtype);

// "F32", as in safetensors files; "?" for no type.
std::string_view DataTypeName(DataType dtype);

// DATA_TYPE_UNSPECIFIED for an unknown name.
DataType ParseDataType(std::string_view name);

// Product of the shape; 1 for a scalar. 0 too where a size is negative or the product overflows:
// such a shape is nobody's.
uint64_t ElementCount(const TensorSpec& tensor);

// ElementCount * ElementBytes.
uint64_t ByteCount(const TensorSpec& tensor);

// Element conversions; sizes as element counts, the spans' byte sizes must fit. IEEE
// round-to-nearest-even.
float HalfToFloat(uint16_t half);
uint16_t FloatToHalf(float value);
// Inline, without branches: loops over them become vectors.
inline float BFloat16ToFloat(uint16_t bfloat16) {
  return std::bit_cast<float>(static_cast<uint32_t>(bfloat16) << 16);
}
inline uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>((is_nan ? bits | 0x400000 : rounded) >> 16);
}

}  // namespace parley

#endif  // PARLEY_COMMON_TENSOR_H_
