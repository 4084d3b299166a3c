#ifndef PARLEY_SERVER_PARAMETER_SHARD_GRADIENT_NORM_H_
#define PARLEY_SERVER_PARAMETER_SHARD_GRADIENT_NORM_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/parameter_shard.pb.h"
#include "proto/types.pb.h"

namespace parley {

// Sum of squares of at most one block, in float64 and in a fixed order.
double SumOfSquares(absl::Span<const float> block);

bool AllFinite(absl::Span<const float> values);

// The root of the blocks' sum, added by tensor name, then block: the same bits whatever shards the
// slices lie on. Slices that are not in `norms` count as 0.
double GlobalNorm(const ClusterView& view, std::vector<SliceNorms> norms);

// torch.nn.utils.clip_grad_norm_: max_norm / (norm + 1e-6), at most 1; NaN for a NaN norm.
double ClipScale(double norm, double max_norm);

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_GRADIENT_NORM_H_
