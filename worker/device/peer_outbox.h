#ifndef PARLEY_WORKER_DEVICE_PEER_OUTBOX_H_
#define PARLEY_WORKER_DEVICE_PEER_OUTBOX_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/device/device.h"

namespace parley {

// Device memory in which a process leaves tensors for the devices of others on its machine, which
// copy them from there: blocks that are filled one tensor behind the other, and used again when
// nobody reads any of those in them any more. One thread's; the device outlives it.
class PeerOutbox {
 public:
  // A tensor that is larger than a block has one of its own.
  PeerOutbox(ComputeDevice& device, std::string what, size_t block_bytes = 16 << 20)
      : device_(device), what_(std::move(what)), block_bytes_(block_bytes) {}

  // What is in it nobody reads any more.
  void BeginUnit() { BeginTurn(0, UINT64_MAX); }
  // What is taken from now on is of this turn of the unit (a batch of an evaluation). Nobody reads
  // any more what was taken in turns before `first_read`.
  void BeginTurn(uint64_t turn, uint64_t first_read);

  struct Place {
    std::byte* memory = nullptr;
    // For the others: the block, and where in it.
    absl::string_view handle;  // until the outbox goes
    size_t block_bytes = 0;
    size_t offset = 0;
  };
  // For a tensor of so many bytes, of this unit. ResourceExhausted as ComputeDevice::Allocate;
  // Unavailable where the device has no memory that others can read.
  absl::StatusOr<Place> Take(size_t bytes);

 private:
  struct Block {
    ComputeDevice::Shared shared;
    size_t bytes = 0;
    size_t used = 0;
    uint64_t last_turn = 0;  // of what lies in it
  };

  ComputeDevice& device_;
  const std::string what_;
  const size_t block_bytes_;
  std::deque<Block> blocks_;
  uint64_t turn_ = 0;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_PEER_OUTBOX_H_
