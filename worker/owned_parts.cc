#include "worker/owned_parts.h"

#include <algorithm>

namespace parley {

std::vector<OwnedPart> PartsByOwner(absl::Span<const BucketPlan::Part> bucket,
                                    absl::Span<const std::vector<Reducer::Range>> ranges) {
  std::vector<OwnedPart> parts;
  for (const BucketPlan::Part& part : bucket) {
    for (const Reducer::Range& range : ranges[part.tensor]) {
      const uint64_t begin = std::max<uint64_t>(part.begin, range.begin / sizeof(float));
      const uint64_t end =
          std::min<uint64_t>(part.begin + part.count, (range.begin + range.bytes) / sizeof(float));
      if (begin >= end) continue;
      parts.push_back(
          {part.tensor, begin, end - begin, part.offset + begin - part.begin, range.rank});
    }
  }
  return parts;
}

}  // namespace parley
