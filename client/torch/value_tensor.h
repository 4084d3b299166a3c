#ifndef PARLEY_CLIENT_TORCH_VALUE_TENSOR_H_
#define PARLEY_CLIENT_TORCH_VALUE_TENSOR_H_

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "client/reference/remote_value.h"

namespace parley {

// A tensor as it travels (client/reference), without a copy where it is contiguous: it must not be
// written any more. InvalidArgument: on another device than the CPU, or of a type that DataType
// lacks.
absl::StatusOr<ValueTensor> ToValueTensor(const at::Tensor& tensor);

// The tensor where the value lies, which it keeps, if that is aligned as LibTorch's own memory; it
// may be memory that can only be read, so nobody may write to the tensor. Else a copy: what gRPC
// has received lies at any address, in any number of pieces. InvalidArgument where type, shape and
// bytes do not fit each other.
absl::StatusOr<at::Tensor> ToTensor(const ValueTensor& value);

}  // namespace parley

#endif  // PARLEY_CLIENT_TORCH_VALUE_TENSOR_H_
