#ifndef PARLEY_CLIENT_TENSOR_ARENA_H_
#define PARLEY_CLIENT_TENSOR_ARENA_H_

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "absl/types/span.h"
#include "proto/types.pb.h"

namespace parley {

// One piece of memory for a list of tensors, each at a multiple of 64 bytes, zero at first.
// Addresses stay for the arena's life, and that of its owner(). Not thread-safe beyond what its
// bytes are.
class TensorArena {
 public:
  explicit TensorArena(const std::vector<TensorSpec>& tensors);

  size_t size() const { return tensors_.size(); }
  absl::Span<std::byte> tensor(size_t i) const { return tensors_[i]; }
  // Keeps the memory beyond the arena's life, for who still reads it.
  std::shared_ptr<const void> owner() const { return memory_; }

 private:
  // A cache line, and the widest vector.
  static constexpr std::align_val_t kAlignment{64};

  std::shared_ptr<std::byte> memory_;
  std::vector<absl::Span<std::byte>> tensors_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_TENSOR_ARENA_H_
