#include "worker/microbatch_seed.h"

#include <algorithm>

#include "common/seed.h"

namespace parley {

uint64_t MicrobatchSeed(const JobConfig& job, const StepPlan& plan, uint64_t microbatch) {
  uint64_t before = microbatch * std::max<uint64_t>(1, job.data().batch());
  uint64_t position = 0;
  for (const SampleRange& range : plan.ranges) {
    const uint64_t samples = range.end() - range.begin();
    position = range.begin() + std::min(before, samples);
    if (before < samples) break;
    before -= samples;
  }
  return DeriveSeed(job.seed(), "step", {plan.data_epoch, position});
}

}  // namespace parley
