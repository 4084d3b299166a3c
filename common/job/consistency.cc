#include "common/job/consistency.h"

#include <algorithm>
#include <limits>

namespace parley {

bool IsClocked(const JobConfig& job) {
  return job.consistency().has_bounded() || job.consistency().has_async();
}

std::optional<uint64_t> ClockBound(const JobConfig& job) {
  if (!job.consistency().has_bounded()) return std::nullopt;
  return job.consistency().bounded().bound();
}

bool SumsContributions(const JobConfig& job) {
  const Consistency& consistency = job.consistency();
  switch (consistency.kind_case()) {
    case Consistency::kBounded:
      return consistency.bounded().reduction() == SUM;
    case Consistency::kAsync:
      return consistency.async().reduction() == SUM;
    default:
      return consistency.sync().reduction() == SUM;
  }
}

uint64_t StepsAskedFor(const JobConfig& job) {
  if (!IsClocked(job)) return job.steps();
  const uint64_t workers = std::max(job.cluster().workers(), uint32_t{1});
  uint64_t steps = 0;
  if (__builtin_mul_overflow(job.steps(), workers, &steps)) {
    return std::numeric_limits<uint64_t>::max();
  }
  return steps;
}

}  // namespace parley
