#ifndef PARLEY_WORKER_DEVICE_GPU_CLAIM_H_
#define PARLEY_WORKER_DEVICE_GPU_CLAIM_H_

#include <memory>
#include <string>
#include <utility>

#include "common/shared_memory/local_socket.h"

namespace parley {

// A GPU that a process of this machine has for itself: the others do not get a claim for it while
// this lives, nor longer than the process does. It is an agreement among processes of parley that
// see one network namespace, and keeps nobody else off the GPU.
class GpuClaim {
 public:
  // id: DevicePlugin::id. nullptr where another process has it.
  static std::unique_ptr<GpuClaim> Take(const std::string& id);

 private:
  explicit GpuClaim(std::unique_ptr<LocalListener> listener) : listener_(std::move(listener)) {}

  const std::unique_ptr<LocalListener> listener_;  // nobody connects: the name is the claim
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_GPU_CLAIM_H_
