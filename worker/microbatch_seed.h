#ifndef PARLEY_WORKER_MICROBATCH_SEED_H_
#define PARLEY_WORKER_MICROBATCH_SEED_H_

#include <cstdint>

#include "client/step_plan.h"
#include "common/seed.h"
#include "proto/job.pb.h"

namespace parley {

// Of whatever the forward of a microbatch draws (dropout): the same whenever, and in whichever
// process, it is computed.
inline uint64_t MicrobatchSeed(const JobConfig& job, const StepPlan& plan, uint64_t microbatch,
                               uint32_t contributor) {
  return DeriveSeed(job.seed(), "step", {plan.data_epoch, plan.step, microbatch, contributor});
}

}  // namespace parley

#endif  // PARLEY_WORKER_MICROBATCH_SEED_H_
