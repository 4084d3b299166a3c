#include "server/coordinator/slice_ranks.h"

#include <algorithm>
#include <cstddef>

#include "common/tensor.h"

namespace parley {

std::vector<uint32_t> SliceRanks(const std::vector<TensorSpec>& tensors,
                                 const std::vector<Slice>& slices, uint32_t group) {
  std::vector<uint64_t> bytes(std::max(group, uint32_t{1}), 0);
  std::vector<uint32_t> ranks;
  for (const Slice& slice : slices) {
    const TensorSpec& tensor = tensors[slice.tensor()];
    const auto rank =
        tensor.buffer() ? bytes.begin() : std::min_element(bytes.begin(), bytes.end());
    *rank += (slice.end() - slice.begin()) * ElementBytes(tensor.dtype());
    ranks.push_back(static_cast<uint32_t>(rank - bytes.begin()));
  }
  return ranks;
}

}  // namespace parley
