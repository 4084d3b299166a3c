#ifndef PARLEY_WORKER_GPU_GROUP_H_
#define PARLEY_WORKER_GPU_GROUP_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/reduce/given_sums.h"
#include "client/reduce/reducer.h"
#include "worker/device/device.h"
#include "worker/device/device_group.h"
#include "worker/device/plugin.h"

namespace parley {

// What adds up the gradients of a node group among its workers' GPUs: the session's end of it
// (GivenSums), and how the GPUs find each other. DeviceBinding uses it on the training thread; Join
// is called on a thread of its own. Outlives session and binding.
class GpuGroup {
 public:
  // Waits for the other ranks of the composition, until cancelled() or the deadline.
  using Join = std::function<absl::StatusOr<std::unique_ptr<DeviceGroup>>(
      const Reducer::Group& group, const std::function<bool()>& cancelled, absl::Time deadline)>;
  explicit GpuGroup(Join join) : join_(std::move(join)) {}

  // For Session::Options::reduce_by.
  std::unique_ptr<Reducer> ReduceBy(std::unique_ptr<Reducer> values) {
    auto sums = std::make_unique<GivenSums>(std::move(values));
    sums_ = sums.get();
    return sums;
  }
  // From the session's Register on; the session owns it.
  GivenSums& sums() { return *sums_; }
  const Join& join() const { return join_; }

 private:
  const Join join_;
  GivenSums* sums_ = nullptr;
};

// Join by a plugin's group (NCCL): rank 0 makes its id, and tells the others by a local name. Both
// must outlive what it gives.
GpuGroup::Join JoinByPlugin(const DevicePlugin& plugin, ComputeDevice& device);

}  // namespace parley

#endif  // PARLEY_WORKER_GPU_GROUP_H_
