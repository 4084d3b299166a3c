#ifndef PARLEY_SERVER_PARAMETER_SHARD_OWED_BLOCKS_H_
#define PARLEY_SERVER_PARAMETER_SHARD_OWED_BLOCKS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/nonzero_blocks.h"

namespace parley {

// What is known of the optimizer state of one block of a slice (kZeroBlock elements) that is
// updated ahead: each slice has two places for its state, in turn. A block whose gradient is zeros
// stays where it is for a few steps, and is owed them: what they make of it is computed when it is
// read.
struct OwedBlock {
  bool in_other = false;  // not in the place of the newest step, but in the other one
  uint8_t steps = 0;      // owed

  bool operator==(const OwedBlock& other) const {
    return in_other == other.in_other && steps == other.steps;
  }
};

// Of all blocks of a slice.
class OwedBlocks {
 public:
  explicit OwedBlocks(uint64_t elements) : blocks_((elements + kZeroBlock - 1) / kZeroBlock) {}

  // Whether there is one that is owed steps, or lies in the other place.
  bool HasAny() const {
    return std::any_of(blocks_.begin(), blocks_.end(),
                       [](const OwedBlock& block) { return !(block == OwedBlock()); });
  }

  // Of the block that begins at, or has, this element.
  const OwedBlock& At(uint64_t element) const { return blocks_[element / kZeroBlock]; }

  // All blocks of the elements begin .. end.
  void Set(uint64_t begin, uint64_t end, OwedBlock block) {
    std::fill(blocks_.begin() + static_cast<int64_t>(begin / kZeroBlock),
              blocks_.begin() + static_cast<int64_t>((end + kZeroBlock - 1) / kZeroBlock), block);
  }

  // Calls run(begin, end, block) for the elements first .. last, as many blocks that are alike at a
  // time as there are, until it returns an error. first: where a block begins.
  template <class Run>
  auto ForRuns(uint64_t first, uint64_t last, Run run) const {
    for (uint64_t begin = first;;) {
      const OwedBlock block = At(begin);
      uint64_t end = std::min(begin + kZeroBlock, last);
      while (end < last && At(end) == block) end = std::min(end + kZeroBlock, last);
      auto status = run(begin, end, block);
      if (!status.ok() || end == last) return status;
      begin = end;
    }
  }

 private:
  std::vector<OwedBlock> blocks_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_OWED_BLOCKS_H_
