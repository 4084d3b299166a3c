#ifndef PARLEY_WORKER_DATA_SAFETENSORS_SOURCE_H_
#define PARLEY_WORKER_DATA_SAFETENSORS_SOURCE_H_

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "worker/data/datasets.h"

namespace parley {

// Tensors `x` and `y` of safetensors files, samples along the first dimension, given out with their
// own element types. InvalidArgument where a file lacks one of them or they have different numbers
// of samples.
absl::StatusOr<Datasets> OpenSafetensors(const Safetensors& settings, FileSystem& files);

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_SAFETENSORS_SOURCE_H_
