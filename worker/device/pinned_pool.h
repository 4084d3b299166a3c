#ifndef PARLEY_WORKER_DEVICE_PINNED_POOL_H_
#define PARLEY_WORKER_DEVICE_PINNED_POOL_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/device/device.h"

namespace parley {

// Pinned memory for what leaves a device and is kept by whoever sends it on: a piece comes back
// when its last holder lets go of it, on any thread, and is used again for what is about as large.
// So of each size as much is pinned as was ever held at a time; none of it is given back.
// Thread-safe. The device outlives it, and all that was
// taken.
class PinnedPool {
 public:
  PinnedPool(ComputeDevice& device, std::string what) : device_(device), what_(std::move(what)) {}

  // At least so many bytes. ResourceExhausted as ComputeDevice::AllocatePinned.
  absl::StatusOr<std::shared_ptr<std::byte>> Take(size_t bytes);

 private:
  struct Free {
    absl::Mutex mu;
    std::vector<DeviceBuffer> pieces ABSL_GUARDED_BY(mu);
  };

  ComputeDevice& device_;
  const std::string what_;
  const std::shared_ptr<Free> free_ = std::make_shared<Free>();  // of the pieces' holders too
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_PINNED_POOL_H_
