#ifndef PARLEY_COMMON_JOB_LEARNING_RATE_H_
#define PARLEY_COMMON_JOB_LEARNING_RATE_H_

#include <cstdint>

#include "proto/job.pb.h"

namespace parley {

// What the optimizer's rate is multiplied by in `step` (from 1): schedule, warm-up (Goyal et al.
// 2017) and linear scaling rule. A pure function, so that every shard computes the same.
// total_steps: of the job, for schedules that run over all of it.
double LearningRateFactor(const JobConfig& job, uint64_t step, uint64_t total_steps);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_LEARNING_RATE_H_
