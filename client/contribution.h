#ifndef PARLEY_CLIENT_CONTRIBUTION_H_
#define PARLEY_CLIENT_CONTRIBUTION_H_

#include <cstddef>
#include <string>

#include "absl/types/span.h"
#include "proto/types.pb.h"

namespace parley {

// Sets `out` to the elements of `gradient` times `weight`, in the same type: the numerator of the
// weighted mean that the shard forms (it adds contributions and divides once by the sum of
// weights). Products in float32 (float64 for F64), rounded once to the type. A weight of 1 and
// integer types: the bytes as they are.
void Weigh(DataType dtype, absl::Span<const std::byte> gradient, double weight, std::string* out);

}  // namespace parley

#endif  // PARLEY_CLIENT_CONTRIBUTION_H_
