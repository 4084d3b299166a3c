#ifndef PARLEY_COMMON_JOB_MODEL_CHECK_H_
#define PARLEY_COMMON_JOB_MODEL_CHECK_H_

#include "common/job/field_check.h"

namespace parley {

// What is wrong with the network of a job.
void CheckModel(FieldCheck& check);

// With what it learns from, and its loss.
void CheckData(FieldCheck& check);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_MODEL_CHECK_H_
