#ifndef PARLEY_WORKER_DATA_BATCH_H_
#define PARLEY_WORKER_DATA_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "worker/data/data_source.h"

namespace parley {

// Memory of another kind than the heap's, so many bytes at a multiple of 64: what a GPU copies
// from. nullptr where there is none. Thread-safe.
using AllocateBatch = std::function<std::shared_ptr<std::byte>(size_t bytes)>;

// Bytes at an address that is a multiple of 64.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(AllocateBatch allocate) : allocate_(std::move(allocate)) {}

  // What was there is lost.
  void Resize(size_t bytes) {
    if (allocate_ != nullptr && bytes > room_) {
      special_ = allocate_(bytes);
      room_ = special_ == nullptr ? 0 : bytes;
    }
    size_ = bytes;
    if (!is_special()) lines_.resize((bytes + sizeof(Line) - 1) / sizeof(Line));
  }
  absl::Span<std::byte> span() {
    return {is_special() ? special_.get() : reinterpret_cast<std::byte*>(lines_.data()), size_};
  }
  // Whether they are of AllocateBatch.
  bool is_special() const { return special_ != nullptr && size_ <= room_; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  AllocateBatch allocate_;
  std::shared_ptr<std::byte> special_;
  size_t room_ = 0;  // of it
  std::vector<Line> lines_;
  size_t size_ = 0;
};

// Samples ready to be computed with: rows in the order of the draw.
struct Batch {
  Batch() = default;
  explicit Batch(const AllocateBatch& allocate) : x(allocate), y(allocate) {}
  Draw draw;
  AlignedBytes x;
  AlignedBytes y;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_BATCH_H_
