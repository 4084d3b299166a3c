#include "worker/batch_tensors.h"

#include <ATen/ops/from_blob.h>

#include <vector>

#include "client/torch/dtype.h"

namespace parley {

at::Tensor BatchTensor(const SampleLayout& layout, size_t samples, absl::Span<std::byte> bytes) {
  std::vector<int64_t> shape = {static_cast<int64_t>(samples)};
  shape.insert(shape.end(), layout.shape.begin(), layout.shape.end());
  return at::from_blob(bytes.data(), shape, at::TensorOptions().dtype(*ToScalarType(layout.dtype)));
}

}  // namespace parley
