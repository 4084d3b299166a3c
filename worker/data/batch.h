#ifndef PARLEY_WORKER_DATA_BATCH_H_
#define PARLEY_WORKER_DATA_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/data/data_source.h"

namespace parley {

// Bytes at an address that is a multiple of 64.
class AlignedBytes {
 public:
  void Resize(size_t bytes) {
    size_ = bytes;
    lines_.resize((bytes + sizeof(Line) - 1) / sizeof(Line));
  }
  absl::Span<std::byte> span() { return {reinterpret_cast<std::byte*>(lines_.data()), size_}; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
  size_t size_ = 0;
};

// Samples ready to be computed with: rows in the order of the draw.
struct Batch {
  Draw draw;
  AlignedBytes x;
  AlignedBytes y;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_BATCH_H_
