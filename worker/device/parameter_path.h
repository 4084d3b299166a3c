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
// Among the devices of a node group each rank's device gets what the rank owns so, and the rest
// from the others' devices, so that a value crosses the bus once for the node:
//
//   to device:      copy of what is own
//                                       \ event
//   communication:                        broadcast of each part by its rank
//                                                                           \ event
//   compute:                                                                  unpack | forward
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
  // compute stream is given next, go to tensors from there.
  absl::Status BringDirect(absl::Span<const ComputeDevice::HostPart> parts);

  // `fill` writes the bucket's values into pinned memory, which is its own until it returns. What
  // the compute stream is given from then on has them in the pieces' tensors; what it was given
  // before has the former ones.
  absl::Status Bring(absl::Span<const Piece> pieces, BucketType type, size_t bytes,
                     absl::Time deadline,
                     absl::FunctionRef<absl::Status(absl::Span<std::byte> values)> fill);

  // Some values of a bucket or tensor, in bytes.
  struct Part {
    size_t begin = 0;
    size_t bytes = 0;
  };
  // Gives the communication stream what brings all that is not own to `values`, and returns when
  // the stream has it.
  using Rest = absl::FunctionRef<absl::Status(std::byte* values)>;
  // As Bring, of float32: `fill` writes the parts of the bucket that are `own`, rest brings others.
  absl::Status BringShared(absl::Span<const Piece> pieces, absl::Span<const Part> own, size_t bytes,
                           absl::Time deadline,
                           absl::FunctionRef<absl::Status(absl::Span<std::byte> values)> fill,
                           Rest rest);
  // What was brought to the tensor by BringDirect and BringTo since Begin is its own; rest brings
  // others.
  absl::Status ShareDirect(std::byte* tensor, Rest rest);
  // `fill` writes values into pinned memory, which go to this place in a tensor: as BringDirect.
  absl::Status BringTo(std::byte* place, size_t bytes, absl::Time deadline,
                       absl::FunctionRef<absl::Status(absl::Span<std::byte> values)> fill);

 private:
  // Pinned memory that `fill` has filled.
  absl::StatusOr<size_t> Filled(size_t bytes, absl::Time deadline,
                                absl::FunctionRef<absl::Status(absl::Span<std::byte> values)> fill);
  explicit ParameterPath(ComputeDevice& device) : device_(device) {}

  ComputeDevice& device_;
  std::unique_ptr<DeviceRing> ring_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<DeviceEvent> landed_;
  std::unique_ptr<DeviceEvent> shared_;
  std::unique_ptr<DeviceEvent> used_;  // the former version
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_PARAMETER_PATH_H_
