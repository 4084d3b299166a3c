#ifndef PARLEY_WORKER_DEVICE_BUCKET_PLAN_H_
#define PARLEY_WORKER_DEVICE_BUCKET_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace parley {

// What of which tensors travels together between a device and the host.
struct BucketPlan {
  struct Part {
    size_t tensor = 0;
    uint64_t begin = 0;  // in the tensor, in elements
    uint64_t count = 0;
    uint64_t offset = 0;  // in the bucket

    bool operator==(const Part&) const = default;
  };
  // The tensors one behind the other, cut into buckets of one size, but for the last one.
  std::vector<std::vector<Part>> buckets;
  // For each tensor the buckets that have parts of it: none where it has no elements.
  std::vector<std::vector<size_t>> buckets_of;
  uint64_t largest = 0;  // elements

  // Until where a bucket is filled, in elements.
  static uint64_t Size(absl::Span<const Part> bucket) {
    return bucket.empty() ? 0 : bucket.back().offset + bucket.back().count;
  }
};

// Copies of less than some megabytes do not use the bus well; larger buckets wait for more of
// backward, and take more pinned memory.
BucketPlan PlanBuckets(absl::Span<const uint64_t> elements, uint64_t bucket_elements);

// Buckets of the same tensors, of which each has elements in one of the two plans only.
BucketPlan Both(BucketPlan first, BucketPlan second);

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_BUCKET_PLAN_H_
