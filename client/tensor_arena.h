#ifndef PARLEY_CLIENT_TENSOR_ARENA_H_
#define PARLEY_CLIENT_TENSOR_ARENA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/shared_memory/memory_source.h"
#include "common/tensor_slice.h"
#include "proto/types.pb.h"

namespace parley {

// One piece of memory for a list of tensors, each at a multiple of 64 bytes, zero at first.
// Addresses stay for the arena's life, and that of its owner(). Not thread-safe beyond what its
// bytes are.
class TensorArena {
 public:
  // source: nullptr for memory that nobody else can see.
  explicit TensorArena(const std::vector<TensorSpec>& tensors, MemorySource* source = nullptr);

  size_t size() const { return tensors_.size(); }
  absl::Span<std::byte> tensor(size_t i) const { return tensors_[i]; }
  // Keeps the memory beyond the arena's life, for who still reads it.
  const std::shared_ptr<const void>& owner() const { return block_.owner; }

  // Where tensor i lies in memory that a peer can be shown; nullopt where it is in none. All
  // tensors are in one segment.
  std::optional<MemoryPlace> PlaceOf(size_t i) const;

  // Whether others can be let read its memory where it lies.
  bool lends() const { return source_ != nullptr; }
  // Of tensor i, for what is lent from now on, until the next Recall of it.
  Loan Lend(size_t i) const { return {counts_ + i, counts_[i].load(std::memory_order_relaxed)}; }
  // What was lent of it, or of all, is going to be written.
  void Recall(size_t i) { counts_[i].fetch_add(1); }
  void Recall();
  // The same, where somebody may still have to read what was lent: they keep it, and this arena has
  // other memory, zeroed, at the same addresses. Of one that lends.
  absl::Status LeaveToReaders();

 private:
  MemorySource* source_;  // nullptr: it does not lend
  MemoryBlock block_;
  std::atomic<uint64_t>* counts_;  // at its beginning, one for each tensor
  std::vector<absl::Span<std::byte>> tensors_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_TENSOR_ARENA_H_
