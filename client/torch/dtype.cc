#include "client/torch/dtype.h"

#include <array>
#include <utility>

namespace parley {
namespace {

constexpr std::array<std::pair<DataType, c10::ScalarType>, 8> kTypes = {{
    {F32, c10::ScalarType::Float},
    {F64, c10::ScalarType::Double},
    {F16, c10::ScalarType::Half},
    {BF16, c10::ScalarType::BFloat16},
    {I64, c10::ScalarType::Long},
    {I32, c10::ScalarType::Int},
    {U8, c10::ScalarType::Byte},
    {BOOL, c10::ScalarType::Bool},
}};

}  // namespace

DataType ToDataType(c10::ScalarType type) {
  for (const auto& [dtype, scalar] : kTypes) {
    if (scalar == type) return dtype;
  }
  return DATA_TYPE_UNSPECIFIED;
}

std::optional<c10::ScalarType> ToScalarType(DataType dtype) {
  for (const auto& [known, scalar] : kTypes) {
    if (known == dtype) return scalar;
  }
  return std::nullopt;
}

}  // namespace parley
