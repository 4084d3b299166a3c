#ifndef PARLEY_COMMON_SHARED_MEMORY_SEGMENT_HEAP_H_
#define PARLEY_COMMON_SHARED_MEMORY_SEGMENT_HEAP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/shared_memory/memory_segment.h"
#include "common/shared_memory/memory_source.h"

namespace parley {

// Blocks of shared memory, and where each address of them lies, for whoever shows it to a peer. A
// segment goes when nobody holds a block of it. Owned by a process (a connector, a shard's main),
// which it need not outlive: blocks keep their segments. Thread-safe.
class SegmentHeap final : public MemorySource {
 public:
  // Blocks of less than this share segments of this size; larger ones have one each.
  explicit SegmentHeap(size_t segment_bytes) : segment_bytes_(segment_bytes) {}

  absl::StatusOr<MemoryBlock> Allocate(size_t bytes) override;

  // Of a block with a segment of its own: other memory, zeroed, at the same address, which peers
  // have not been shown; they keep the former contents.
  absl::Status Renew(const MemoryBlock& block) override;

  using Place = MemoryPlace;
  std::optional<Place> Find(const void* data, size_t bytes) const override;

 private:
  struct Chunk {
    uint32_t number = 0;
    std::shared_ptr<MemorySegment> segment;
  };

  absl::StatusOr<std::shared_ptr<Chunk>> MakeChunk(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t segment_bytes_;
  mutable absl::Mutex mu_;
  // By their first addresses; those that have gone are dropped when the next one is made.
  std::map<const std::byte*, std::weak_ptr<Chunk>> chunks_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Chunk> open_ ABSL_GUARDED_BY(mu_);  // has room left
  size_t used_ ABSL_GUARDED_BY(mu_) = 0;              // bytes of it
  uint32_t next_number_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace parley

#endif  // PARLEY_COMMON_SHARED_MEMORY_SEGMENT_HEAP_H_
