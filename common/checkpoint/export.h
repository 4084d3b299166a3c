#ifndef PARLEY_COMMON_CHECKPOINT_EXPORT_H_
#define PARLEY_COMMON_CHECKPOINT_EXPORT_H_

#include <string>

#include "absl/status/status.h"
#include "common/file_system.h"

namespace parley {

// Merges a checkpoint (path: as ResolveCheckpoint takes it) into model.safetensors, with all
// parameters and buffers, and optimizer.safetensors, with PyTorch's names and shapes:
// "conv1.weight.exp_avg", and the step count as a scalar of type F32, "conv1.weight.step", where
// PyTorch's optimizer has one (all but SGD, which has no momentum_buffer either before a tensor's
// first step). Makes the folder `out`. The files appear whole or not
// at all. Memory: a few MiB. FailedPrecondition: that cannot be made. NotFound, DataLoss (verify
// first: sums are not checked here) and the codes of files.
absl::Status ExportCheckpoint(FileSystem& files, const std::string& path, const std::string& out);

}  // namespace parley

#endif  // PARLEY_COMMON_CHECKPOINT_EXPORT_H_
