#ifndef PARLEY_SERVER_COORDINATOR_SLICE_RANKS_H_
#define PARLEY_SERVER_COORDINATOR_SLICE_RANKS_H_

#include <cstdint>
#include <vector>

#include "proto/types.pb.h"

namespace parley {

// Which rank of each node group of `group` ranks adds up and sends which slice, by the slice's
// index: each to the rank that has the fewest bytes so far, in the order of the slices, so that all
// have about as much, of each stretch of the model, whatever backward reaches first. Buffers, which
// nobody adds up, are rank 0's: it has data whenever its group has. A pure function of tensors and
// slices; where these lie does not matter.
std::vector<uint32_t> SliceRanks(const std::vector<TensorSpec>& tensors,
                                 const std::vector<Slice>& slices, uint32_t group);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_SLICE_RANKS_H_
