#ifndef PARLEY_WORKER_DEVICE_PLUGIN_LOADER_H_
#define PARLEY_WORKER_DEVICE_PLUGIN_LOADER_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/device/plugin.h"

namespace parley {

// How many GPUs the machine's NVIDIA driver finds, at least 1. FailedPrecondition where there is no
// driver or no GPU, or the driver cannot start. Asked of the driver itself, so that a machine
// without a GPU does not load gigabytes of libraries to find that out.
absl::StatusOr<int> CountGpus();

// Loads a shared object with devices; it stays until the process ends. FailedPrecondition where it,
// or a library that it needs, is missing, or where it is of another build. All messages are one
// line, and name what is missing.
absl::StatusOr<const DevicePlugin*> LoadDevicePlugin(const std::string& path);

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_PLUGIN_LOADER_H_
