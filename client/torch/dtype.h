#ifndef PARLEY_CLIENT_TORCH_DTYPE_H_
#define PARLEY_CLIENT_TORCH_DTYPE_H_

#include <c10/core/ScalarType.h>

#include <optional>

#include "proto/types.pb.h"

namespace parley {

// DATA_TYPE_UNSPECIFIED for a type that the service does not know (complex numbers, quantised ones,
// ...).
DataType ToDataType(c10::ScalarType type);

// nullopt for DATA_TYPE_UNSPECIFIED.
std::optional<c10::ScalarType> ToScalarType(DataType dtype);

}  // namespace parley

#endif  // PARLEY_CLIENT_TORCH_DTYPE_H_
