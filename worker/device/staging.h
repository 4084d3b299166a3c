#ifndef PARLEY_WORKER_DEVICE_STAGING_H_
#define PARLEY_WORKER_DEVICE_STAGING_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/device/device.h"

namespace parley {

// Pinned memory between host and device, in blocks of one size that are used again step after step:
// to pin memory takes far longer than to copy it. A block is the host's or a copy's: who takes it
// has it to write to, and it is given back either by the host or with the copy that reads it last.
// Thread-safe. Its device outlives it; it waits for its copies in its destructor.
class Staging {
 public:
  // Pins at most `most` blocks, as they are needed.
  Staging(ComputeDevice& device, std::string what, size_t block_bytes, size_t most);
  ~Staging();

  // A block that neither host nor copies use any more. Where all are in use it waits for the copy
  // that is done first; Unavailable where all are the host's. ResourceExhausted as AllocatePinned.
  absl::StatusOr<size_t> Take(absl::Time deadline);
  std::byte* block(size_t i) const;
  size_t block_bytes() const { return block_bytes_; }

  // The host is done with it, and no copy uses it.
  void Release(size_t block);
  // Copies that `stream` has been given until now are the last that use it.
  absl::Status ReleaseAfter(size_t block, StreamId stream);

  // How many are pinned.
  size_t blocks() const;

 private:
  struct Block {
    DeviceBuffer memory;
    std::unique_ptr<DeviceEvent> copied;
  };

  absl::StatusOr<size_t> Pin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ComputeDevice& device_;
  const std::string what_;
  const size_t block_bytes_;
  const size_t most_;

  mutable absl::Mutex mu_;
  std::vector<std::unique_ptr<Block>> blocks_ ABSL_GUARDED_BY(mu_);
  std::vector<size_t> free_ ABSL_GUARDED_BY(mu_);
  std::vector<size_t> copying_ ABSL_GUARDED_BY(mu_);  // the oldest first
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_STAGING_H_
