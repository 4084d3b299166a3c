#ifndef PARLEY_CLIENT_REFERENCE_REMOTE_VALUE_H_
#define PARLEY_CLIENT_REFERENCE_REMOTE_VALUE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/tensor_slice.h"
#include "proto/types.pb.h"

namespace parley {

// One tensor of a value. Row-major, little-endian, no padding; `owner` keeps the bytes.
struct ValueTensor {
  DataType dtype = DATA_TYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  TensorBytes bytes;
  std::shared_ptr<const void> owner;
};

// What a reference stands for: a few tensors that nobody changes any more.
struct RemoteValue {
  std::vector<ValueTensor> tensors;
};
using ValuePtr = std::shared_ptr<const RemoteValue>;

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_REMOTE_VALUE_H_
