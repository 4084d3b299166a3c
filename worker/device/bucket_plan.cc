#include "worker/device/bucket_plan.h"

#include <algorithm>
#include <utility>

namespace parley {

BucketPlan PlanBuckets(absl::Span<const uint64_t> elements, uint64_t bucket_elements) {
  BucketPlan plan;
  plan.buckets_of.resize(elements.size());
  uint64_t filled = bucket_elements;  // of the last bucket: there is none with room
  for (size_t i = 0; i < elements.size(); ++i) {
    for (uint64_t begin = 0; begin < elements[i];) {
      if (filled == bucket_elements) {
        plan.buckets.emplace_back();
        filled = 0;
      }
      const uint64_t count = std::min(elements[i] - begin, bucket_elements - filled);
      plan.buckets.back().push_back({i, begin, count, filled});
      plan.buckets_of[i].push_back(plan.buckets.size() - 1);
      begin += count;
      filled += count;
      plan.largest = std::max(plan.largest, filled);
    }
  }
  return plan;
}

BucketPlan Both(BucketPlan first, BucketPlan second) {
  for (size_t i = 0; i < first.buckets_of.size(); ++i) {
    for (const size_t bucket : second.buckets_of[i]) {
      first.buckets_of[i].push_back(first.buckets.size() + bucket);
    }
  }
  for (auto& bucket : second.buckets) first.buckets.push_back(std::move(bucket));
  first.largest = std::max(first.largest, second.largest);
  return first;
}

}  // namespace parley
