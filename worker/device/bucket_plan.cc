#include "worker/device/bucket_plan.h"

#include <algorithm>

namespace parley {

BucketPlan PlanBuckets(absl::Span<const uint64_t> elements, uint64_t least) {
  BucketPlan plan;
  plan.bucket_of.assign(elements.size(), BucketPlan::kNone);
  uint64_t filled = least;  // of the last bucket: none is open
  for (size_t i = 0; i < elements.size(); ++i) {
    if (elements[i] == 0) continue;
    if (filled >= least) {
      plan.buckets.emplace_back();
      filled = 0;
    }
    plan.buckets.back().push_back(i);
    plan.bucket_of[i] = plan.buckets.size() - 1;
    filled += elements[i];
    plan.largest = std::max(plan.largest, filled);
  }
  return plan;
}

}  // namespace parley
