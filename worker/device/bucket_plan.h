#ifndef PARLEY_WORKER_DEVICE_BUCKET_PLAN_H_
#define PARLEY_WORKER_DEVICE_BUCKET_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace parley {

// Which tensors travel together between a device and the host.
struct BucketPlan {
  // In the order of the tensors; each bucket's tensors are neighbours.
  std::vector<std::vector<size_t>> buckets;
  std::vector<size_t> bucket_of;  // tensor; kNone: in none
  uint64_t largest = 0;           // elements

  static constexpr size_t kNone = ~size_t{0};
};

// Buckets of at least `least` elements each but for the last one, of those tensors that have any.
// Copies of less than some megabytes do not use the bus well; larger buckets wait for more of
// backward.
BucketPlan PlanBuckets(absl::Span<const uint64_t> elements, uint64_t least);

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_BUCKET_PLAN_H_
