#ifndef PARLEY_WORKER_MODELS_TORCHSCRIPT_H_
#define PARLEY_WORKER_MODELS_TORCHSCRIPT_H_

#include <string>

#include "worker/models/network.h"

namespace parley {

// A module saved by torch.jit.script(...).save(path), with its values. Its forward takes one tensor
// and returns one. NotFound, or InvalidArgument with LibTorch's reason where the file is no such
// module.
absl::StatusOr<std::unique_ptr<Network>> LoadTorchScript(const std::string& path);

}  // namespace parley

#endif  // PARLEY_WORKER_MODELS_TORCHSCRIPT_H_
