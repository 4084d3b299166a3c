#ifndef PARLEY_COMMON_JOB_LEARNING_RATE_H_
#define PARLEY_COMMON_JOB_LEARNING_RATE_H_

#include <cstdint>

#include "proto/job.pb.h"

namespace parley {

// Where a step stands in the job. Of the data the step leader says it, so that every shard has the
// same (Verdict.next).
struct StepPlace {
  uint64_t step = 1;       // from 1; in bounded and async one of all workers
  double epochs_done = 0;  // data epochs used before it
  double epochs = 0;       // that it uses if all contributors take part
};

// What the optimizer's rate is multiplied by in a step: schedule, warm-up (Goyal et al. 2017) and
// linear scaling rule. A pure function.
double LearningRateFactor(const JobConfig& job, const StepPlace& place);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_LEARNING_RATE_H_
