#ifndef PARLEY_CLIENT_REDUCE_RANK_SUM_H_
#define PARLEY_CLIENT_REDUCE_RANK_SUM_H_

#include <cstddef>

#include "absl/types/span.h"
#include "proto/types.pb.h"

namespace parley {

// One rank's gradient of a range.
struct RankGradient {
  const std::byte* data = nullptr;  // aligned to its elements
  double weight = 1;
};

// Sets `out` to the sum of gradients times weights, in the order given; bit for bit what a shard
// makes of them when they come from single workers: each product in the tensor's type (Weigh of
// client/contribution.h), their sum in float32. dtype: F32 or F64. `out` may be one of the
// gradients; else they do not overlap.
void AddRanks(DataType dtype, absl::Span<const RankGradient> gradients, absl::Span<std::byte> out);

}  // namespace parley

#endif  // PARLEY_CLIENT_REDUCE_RANK_SUM_H_
