#ifndef PARLEY_COMMON_JOB_SLURM_CHECK_H_
#define PARLEY_COMMON_JOB_SLURM_CHECK_H_

#include "common/job/field_check.h"

namespace parley {

// What a job asks Slurm for.
void CheckSlurm(FieldCheck& check);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_SLURM_CHECK_H_
