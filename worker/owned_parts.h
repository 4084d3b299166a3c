#ifndef PARLEY_WORKER_OWNED_PARTS_H_
#define PARLEY_WORKER_OWNED_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "client/reduce/reducer.h"
#include "worker/device/bucket_plan.h"

namespace parley {

// Some values of a tensor in a bucket, and the rank of the node group whose they are.
struct OwnedPart {
  size_t tensor = 0;
  uint64_t begin = 0;  // in the tensor, in elements
  uint64_t count = 0;
  uint64_t at = 0;  // in the bucket
  uint32_t rank = 0;

  bool operator==(const OwnedPart&) const = default;
};

// Whose what lies in a bucket of float32 is, in the bucket's order. ranges: by tensor, in order.
std::vector<OwnedPart> PartsByOwner(absl::Span<const BucketPlan::Part> bucket,
                                    absl::Span<const std::vector<Reducer::Range>> ranges);

}  // namespace parley

#endif  // PARLEY_WORKER_OWNED_PARTS_H_
