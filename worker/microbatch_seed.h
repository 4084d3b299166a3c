#ifndef PARLEY_WORKER_MICROBATCH_SEED_H_
#define PARLEY_WORKER_MICROBATCH_SEED_H_

#include <cstdint>

#include "client/step_plan.h"
#include "proto/job.pb.h"

namespace parley {

// Of whatever the forward of a microbatch draws (dropout). It follows from the samples that it has:
// the data epoch, and the position of the first one in its order. So the same is drawn whenever,
// and in whichever process, they are computed, and a step of two workers with four microbatches
// each draws what one worker's step of eight does. `microbatch` counts within the plan, from 0.
uint64_t MicrobatchSeed(const JobConfig& job, const StepPlan& plan, uint64_t microbatch);

}  // namespace parley

#endif  // PARLEY_WORKER_MICROBATCH_SEED_H_
