#ifndef PARLEY_COMMON_SHARED_MEMORY_MEMORY_SOURCE_H_
#define PARLEY_COMMON_SHARED_MEMORY_MEMORY_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"

namespace parley {

class MemorySegment;

// Zeroed memory, aligned to 64 bytes, for as long as somebody holds `owner`.
struct MemoryBlock {
  std::byte* data = nullptr;
  size_t bytes = 0;
  std::shared_ptr<const void> owner;
};

// Where an address lies, for whoever shows it to a peer.
struct MemoryPlace {
  uint32_t segment = 0;  // a number of its source's, never used again
  uint64_t offset = 0;
  std::shared_ptr<const MemorySegment> memory;
};

// Where large blocks come from that another process may be shown: what code takes that does not
// care how. Thread-safe.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // ResourceExhausted where there is no memory.
  virtual absl::StatusOr<MemoryBlock> Allocate(size_t bytes) = 0;
  // Other memory, zeroed, at the address of the block: who has been shown the former keeps that as
  // it is. Nobody may use the block meanwhile. InvalidArgument where this block has not its own.
  virtual absl::Status Renew(const MemoryBlock& block) = 0;
  // nullopt where not all of these bytes are in one segment of this source's.
  virtual std::optional<MemoryPlace> Find(const void* /*data*/, size_t /*bytes*/) const {
    return std::nullopt;
  }
};

}  // namespace parley

#endif  // PARLEY_COMMON_SHARED_MEMORY_MEMORY_SOURCE_H_
