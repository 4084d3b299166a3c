#ifndef PARLEY_WORKER_DEVICE_SAMPLE_PATH_H_
#define PARLEY_WORKER_DEVICE_SAMPLE_PATH_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/device/device.h"
#include "worker/device/staging.h"

namespace parley {

// How a batch of samples comes to a device that still computes with the one before:
//
//   host:      samples into pinned memory
//   to device:                            copy
//                                             \ event
//   compute:   ... the batch before ...          | this one             | event
//                                                                            \ the block is free
//
// Batches lie in a few blocks of the device's memory that are used again and again. The training
// thread brings them; any thread lets go of them.
class SamplePath {
 public:
  struct Options {
    size_t batch_bytes = 0;  // of the largest one: RoomFor
    size_t batches = 2;      // at once
  };
  // The device outlives it. ResourceExhausted as ComputeDevice::Allocate.
  static absl::StatusOr<std::unique_ptr<SamplePath>> Make(ComputeDevice& device,
                                                          const Options& options);

  // One on the device: valid for what the compute stream is given while this lives.
  class Batch {
   public:
    ~Batch();
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    // Where its parts begin.
    const std::vector<std::byte*>& parts() const { return parts_; }

   private:
    friend class SamplePath;
    Batch() = default;
    struct Blocks;
    std::shared_ptr<Blocks> blocks_;
    size_t block_ = 0;
    std::vector<std::byte*> parts_;
  };

  using Parts = absl::Span<const absl::Span<const std::byte>>;
  static size_t RoomFor(Parts parts);
  size_t batch_bytes() const { return batch_bytes_; }

  // Copies the parts; their memory is the caller's again when it returns. Unavailable where all
  // blocks are held. Batches may outlive the path, but not the device.
  absl::StatusOr<std::shared_ptr<Batch>> Bring(Parts parts, absl::Time deadline);
  // The same where the parts lie in pinned memory: copied from there, which must stay as it is
  // until AwaitPinned.
  absl::StatusOr<std::shared_ptr<Batch>> BringPinned(Parts parts);
  absl::Status AwaitPinned(absl::Time deadline);

 private:
  explicit SamplePath(ComputeDevice& device) : device_(device) {}
  // A block for these parts.
  absl::StatusOr<std::shared_ptr<Batch>> Take(Parts parts);
  // What the compute stream is given from now on comes after the copies.
  absl::Status Land();

  ComputeDevice& device_;
  size_t batch_bytes_ = 0;
  std::shared_ptr<Batch::Blocks> blocks_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<DeviceEvent> landed_;
  bool is_landing_ = false;  // from memory of the caller's
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_SAMPLE_PATH_H_
