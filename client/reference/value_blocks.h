#ifndef PARLEY_CLIENT_REFERENCE_VALUE_BLOCKS_H_
#define PARLEY_CLIENT_REFERENCE_VALUE_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/shared_memory/memory_segment.h"

namespace parley {

// Blocks of shared memory for what one process on this machine is sent, each a segment of its own.
// One that the peer has read is used again, for something of about its size: fresh memory, page by
// page, costs several times the copy. Part of LocalReferenceLink, under its lock.
class ValueBlocks {
 public:
  // Of all blocks, in use or not.
  explicit ValueBlocks(size_t most_bytes) : most_bytes_(most_bytes) {}

  struct Block {
    uint32_t number = 0;  // never used again for another one
    std::shared_ptr<MemorySegment> memory;
  };
  // Of at least so many bytes. ResourceExhausted: the peer has not read what it has, or the system
  // has no memory.
  absl::StatusOr<Block> Take(size_t bytes);
  // InvalidArgument where this block is not in use.
  absl::Status GiveBack(uint32_t number);
  // All go, those in use too: for the end of the connection. Whoever copies into one keeps it.
  void Clear() {
    blocks_.clear();
    bytes_ = 0;
  }
  // Those that have gone since the last call.
  std::vector<uint32_t> TakeGone() { return std::exchange(gone_, {}); }
  // The peer has not heard of these.
  void PutGone(const std::vector<uint32_t>& gone) {
    gone_.insert(gone_.end(), gone.begin(), gone.end());
  }

  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::shared_ptr<MemorySegment> memory;
    bool used = false;
  };

  const size_t most_bytes_;
  std::map<uint32_t, Entry> blocks_;
  size_t bytes_ = 0;
  uint32_t next_number_ = 1;
  std::vector<uint32_t> gone_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_VALUE_BLOCKS_H_
