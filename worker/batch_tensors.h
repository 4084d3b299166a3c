#ifndef PARLEY_WORKER_BATCH_TENSORS_H_
#define PARLEY_WORKER_BATCH_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "absl/types/span.h"
#include "worker/data/data_source.h"

namespace parley {

// A tensor [samples, ...] over the memory of a batch's x or y, valid as long as that.
at::Tensor BatchTensor(const SampleLayout& layout, size_t samples, absl::Span<std::byte> bytes);

}  // namespace parley

#endif  // PARLEY_WORKER_BATCH_TENSORS_H_
