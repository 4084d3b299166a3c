#ifndef PARLEY_SERVER_COORDINATOR_PLACEMENT_H_
#define PARLEY_SERVER_COORDINATOR_PLACEMENT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/types.pb.h"

namespace parley {

// No slice begins within a block of so many elements: the global norm is added block by block.
inline constexpr uint64_t kBlockElements = 65'536;
// What a big tensor is cut into: 1 MiB of float32.
inline constexpr uint64_t kSliceElements = 262'144;
// Of all tensors of a job; beyond it the list of slices itself would become the burden.
inline constexpr uint64_t kMaxElements = uint64_t{1} << 38;

// InvalidArgument, naming the tensor: none at all, no or a repeated name, no element type, a shape
// without elements or beyond 64 bits, more than kMaxElements in all.
absl::Status CheckTensors(const std::vector<TensorSpec>& tensors);

// Where the elements of tensors lie: a pure function of its arguments, so that `parley plan` shows
// what the coordinator will do. Slices are in order of tensor and begin, ids count from 0; every
// element is in exactly one. A tensor above slice_elements is cut into slices of that size (a
// multiple of kBlockElements); the slices go, the largest first, each to the shard that has the
// fewest bytes so far (Graham's LPT rule). The codes of CheckTensors; InvalidArgument for 0 shards
// or a bad slice size.
absl::StatusOr<std::vector<Slice>> Place(const std::vector<TensorSpec>& tensors, uint32_t shards,
                                         uint64_t slice_elements = kSliceElements);

// Bytes of values on each shard.
std::vector<uint64_t> ShardBytes(const std::vector<TensorSpec>& tensors,
                                 const std::vector<Slice>& slices, uint32_t shards);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_PLACEMENT_H_
