#ifndef PARLEY_SERVER_PARAMETER_SHARD_SUM_KERNELS_H_
#define PARLEY_SERVER_PARAMETER_SHARD_SUM_KERNELS_H_

#include "absl/types/span.h"

namespace parley {

// Loops over gradients, compiled for the instruction set of this machine (optimizer_kernels.h);
// the same bits on every one.

// out[i] = ((out[i] + addends[0][i]) + addends[1][i]) + ..., or without the first out[i] where
// `fresh`: in that order, several of them in one pass over `out`. Each addend has out.size()
// elements and does not overlap `out`.
void AddInOrder(absl::Span<const float* const> addends, bool fresh, absl::Span<float> out);

// out[i] = in[i] / divisor, rounded once. `in` has out.size() elements; it may be `out` itself.
void DivideBy(float divisor, const float* in, absl::Span<float> out);

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_SUM_KERNELS_H_
