#ifndef PARLEY_WORKER_DEVICE_PARAMETER_PATH_H_
#define PARLEY_WORKER_DEVICE_PARAMETER_PATH_H_

#include <cstddef>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/device/device.h"
#include "worker/device/device_ring.h"
#include "worker/device/staging.h"

namespace parley {

// How pulled parameters come to a device, bucket by bucket in the order in which forward needs
// them:
//
//   host:       values into pinned memory
//   to device:                            copy
//                                             \ event
//   compute:                                    unpack into the parameters | forward of these
//   layers
//
// The host waits for no copy, but for room. The training thread's.
class ParameterPath {
 public:
  struct Options {
    size_t bucket_bytes = 0;  // of the largest one
    size_t landing = 2;       // blocks of device memory where buckets come
    size_t most_pinned = 4;
  };
  // The device outlives it.
  static absl::StatusOr<std::unique_ptr<ParameterPath>> Make(ComputeDevice& device,
                                                             const Options& options);

  // Before each version: what comes by BringDirect comes after what the compute stream has been
  // given until now.
  absl::Status Begin();

  // Values that lie in pinned memory, and stay there as they are until the device has done what the
  // compute stream is given next, go to a tensor from there.
  absl::Status BringDirect(std::byte* tensor, absl::Span<const std::byte> values);

  // `fill` writes the bucket's values into pinned memory, which is its own until it returns. What
  // the compute stream is given from then on has them in the pieces' tensors; what it was given
  // before has the former ones.
  absl::Status Bring(absl::Span<const Piece> pieces, BucketType type, size_t bytes,
                     absl::Time deadline,
                     absl::FunctionRef<absl::Status(absl::Span<std::byte> values)> fill);

 private:
  explicit ParameterPath(ComputeDevice& device) : device_(device) {}

  ComputeDevice& device_;
  std::unique_ptr<DeviceRing> ring_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<DeviceEvent> landed_;
  std::unique_ptr<DeviceEvent> used_;  // the former version
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_PARAMETER_PATH_H_
