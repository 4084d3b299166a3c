#ifndef PARLEY_COMMON_JOB_OPTIMIZER_CHECK_H_
#define PARLEY_COMMON_JOB_OPTIMIZER_CHECK_H_

#include "common/job/field_check.h"

namespace parley {

// What is wrong with the optimizer of a job.
void CheckOptimizer(FieldCheck& check);

// With how its rate changes over time.
void CheckLearningRate(FieldCheck& check);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_OPTIMIZER_CHECK_H_
