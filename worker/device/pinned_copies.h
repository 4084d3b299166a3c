#ifndef PARLEY_WORKER_DEVICE_PINNED_COPIES_H_
#define PARLEY_WORKER_DEVICE_PINNED_COPIES_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/device/device.h"

namespace parley {

// Copies between the host's ordinary memory and a device's, through a few blocks of pinned memory,
// where whoever asks for a copy has nothing else to compute meanwhile (a stage of a pipeline waits
// for its activations):
//
//   host:      into a block                                          out of the block
//   compute:               \ copy | what computes with it ... | copy / event
//
// All is work of the compute stream: no other stream to put in an order with, and the memory on the
// device may be LibTorch's, which is given out again in the order of that stream. One thread at a
// time. The device outlives it.
class PinnedCopies {
 public:
  struct Options {
    // Smaller ones take longer for each copy; larger ones more pinned memory.
    size_t block_bytes = 4 << 20;
    // The host fills or empties one while the device copies the others.
    size_t blocks = 4;
  };
  // ResourceExhausted as ComputeDevice::AllocatePinned.
  static absl::StatusOr<std::unique_ptr<PinnedCopies>> Make(ComputeDevice& device,
                                                            const Options& options);
  // Waits for the copies that are under way.
  ~PinnedCopies();

  struct In {
    const std::byte* host = nullptr;
    std::byte* device = nullptr;
    size_t bytes = 0;
  };
  // What the compute stream is given from now on has them; what it was given before has what was
  // there. The host's memory is the caller's again when it returns. Waits for room only.
  absl::Status ToDevice(absl::Span<const In> copies, absl::Time deadline);

  struct Out {
    const std::byte* device = nullptr;
    std::byte* host = nullptr;
    size_t bytes = 0;
  };
  // What is there once the compute stream has done what it was given until now. Waits for it. After
  // an error the host's memory is not written any more.
  absl::Status ToHost(absl::Span<const Out> copies, absl::Time deadline);

 private:
  // A piece of a block that goes to the host's memory.
  struct Landing {
    std::byte* host = nullptr;
    size_t offset = 0;
    size_t bytes = 0;
  };
  struct Block {
    DeviceBuffer memory;
    std::unique_ptr<DeviceEvent> copied;
    bool busy = false;              // copies use it until the event
    std::vector<Landing> landings;  // when it has passed
  };

  explicit PinnedCopies(ComputeDevice& device) : device_(device) {}

  // Cuts `bytes` at the blocks' borders: `copy` gives the compute stream each piece.
  template <class Copies, class Copy>
  absl::Status InBlocks(const Copies& copies, absl::Time deadline, Copy copy);
  absl::Status Finish(Block& block, absl::Time deadline);
  absl::Status SendOff(Block& block);

  ComputeDevice& device_;
  std::vector<Block> blocks_;
  size_t next_ = 0;  // whose turn it is: the oldest
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_PINNED_COPIES_H_
