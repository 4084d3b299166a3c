#ifndef PARLEY_COMMON_TENSOR_SLICE_H_
#define PARLEY_COMMON_TENSOR_SLICE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "proto/types.pb.h"

namespace parley {

class MemorySegment;  // common/shared_memory/memory_segment.h

// A tensor's bytes where they lie: in one piece, or in the pieces in which a transport has received
// them, which end anywhere, also within an element. A view; whoever hands it out says for how long.
class TensorBytes {
 public:
  using Piece = absl::Span<const std::byte>;

  TensorBytes() = default;
  TensorBytes(Piece bytes) { Append(bytes); }  // NOLINT(google-explicit-constructor)
  TensorBytes(std::string_view bytes)          // NOLINT(google-explicit-constructor)
      : TensorBytes(Piece(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size())) {}

  void Append(Piece piece) {
    if (piece.empty()) return;
    pieces_.push_back(piece);
    size_ += piece.size();
  }

  void Clear() {
    pieces_.clear();
    size_ = 0;
  }

  size_t size() const { return size_; }
  absl::Span<const Piece> pieces() const { return pieces_; }

  // `out` has size() bytes.
  void CopyTo(std::byte* out) const;

  // So many bytes of it from there on, which it has.
  TensorBytes Part(size_t begin, size_t size) const;

 private:
  absl::InlinedVector<Piece, 1> pieces_;
  size_t size_ = 0;
};

// Memory that is read where it lies, though its owner will write it again some day: the owner
// raises a count beforehand, so that who has read can see whether it was still what was lent (the
// reader's side of a sequence lock, as in Linux). Where there is no count the bytes stay as they
// are for as long as their owner is held.
struct Loan {
  const std::atomic<uint64_t>* count = nullptr;
  uint64_t lent_at = 0;  // what it was then

  // After reading.
  bool Stands() const {
    if (count == nullptr) return true;
#if !defined(__SANITIZE_THREAD__)  // knows no fences
    std::atomic_thread_fence(std::memory_order_acquire);
#endif
    return count->load(std::memory_order_relaxed) == lent_at;
  }
};

// A SliceData (proto/types.proto) without a copy of its bytes. `owner` keeps them, where somebody
// has to: nullptr where they live as long as the call that hands the slice over.
struct TensorSlice {
  uint32_t slice = 0;
  DataType dtype = DATA_TYPE_UNSPECIFIED;
  TensorBytes bytes;
  std::shared_ptr<const void> owner;
  // Of a push: the shard may read the bytes until the attempt is over, instead of copying them. Of
  // a pull: to be looked at after reading. Needs an owner.
  std::optional<Loan> loan;
  // The segment of shared memory that they lie in, where a peer shows it.
  std::shared_ptr<const MemorySegment> segment;
  // Of a push, where it is known: which blocks hold anything but zeros (common/nonzero_blocks.h).
  std::string nonzero;
  bool packed = false;  // `bytes` are those of these blocks only
};

// Views of a message's bytes, which has to outlive them; and a message with copies.
template <class Repeated>
std::vector<TensorSlice> ViewsOf(const Repeated& slices) {
  std::vector<TensorSlice> views;
  views.reserve(static_cast<size_t>(slices.size()));
  for (const SliceData& slice : slices) {
    views.push_back({slice.slice(), slice.dtype(), std::string_view(slice.data()), nullptr,
                     std::nullopt, nullptr, slice.nonzero(), !slice.nonzero().empty()});
  }
  return views;
}
void CopyTo(const TensorSlice& slice, SliceData& message);

}  // namespace parley

#endif  // PARLEY_COMMON_TENSOR_SLICE_H_
