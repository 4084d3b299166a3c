#ifndef PARLEY_CLIENT_PARAMETER_ARENA_H_
#define PARLEY_CLIENT_PARAMETER_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/shared_memory/memory_segment.h"
#include "common/tensor_slice.h"
#include "proto/types.pb.h"

namespace parley {

// The memory in which a training loop reads its parameters: one range of addresses for a list of
// tensors, each in one piece. What lies there is the arena's own, or memory that a shard on the
// same machine shows (docs/shared_memory.md): whole pages of its values then stand at the tensor's
// address, and are not copied. The training thread's, but for what reads the values.
class ParameterArena {
 public:
  // Slices of at least so many bytes can be shown. Smaller ones would cost more pages than they
  // save copies.
  static constexpr size_t kShown = 256 << 10;

  // ResourceExhausted where the system has no memory.
  static absl::StatusOr<std::unique_ptr<ParameterArena>> Make(
      const std::vector<TensorSpec>& tensors);

  // 64-byte aligned; those of kShown bytes and more begin a page. Zero at first.
  absl::Span<const std::byte> tensor(size_t i) const { return tensors_[i]; }

  // Where to write these bytes of a tensor, whole slices of it: own memory. Where a shard's was
  // shown, its contents are not defined.
  absl::StatusOr<std::byte*> Own(size_t tensor, size_t begin, size_t bytes);

  // Lets the slice's own memory stand at these bytes of a tensor, from now on until Own of the same
  // bytes, or Detach. Whatever its owner writes there then shows. False where it cannot: it is
  // small, lies in no peer's segment, or not at the beginning of a page.
  absl::StatusOr<bool> Show(size_t tensor, size_t begin, const TensorSlice& slice);

  // What is shown of a tensor and begins in its bytes begin .. end, in order: where its segment is
  // mapped on its own.
  struct ShownPart {
    size_t begin = 0;  // in the tensor
    absl::Span<const std::byte> bytes;
    std::shared_ptr<const MemorySegment> segment;
  };
  std::vector<ShownPart> ShownParts(size_t tensor, size_t begin, size_t end) const;

  // Whether all that is shown is what it was at its last Show.
  bool Stands() const;

  // Makes all values the arena's own, as they are.
  absl::Status Detach();

  // Keeps the memory beyond the arena's life.
  std::shared_ptr<const void> owner() const { return region_; }

 private:
  struct Region;
  struct Shown {
    std::shared_ptr<const MemorySegment> segment;
    size_t offset = 0;
    size_t bytes = 0;
    Loan loan;
  };

  ParameterArena() = default;
  static absl::Status MakeOwn(std::byte* where, size_t bytes);

  std::shared_ptr<Region> region_;
  std::vector<absl::Span<std::byte>> tensors_;
  std::map<std::byte*, Shown> shown_;  // by address
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARAMETER_ARENA_H_
