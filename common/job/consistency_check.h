#ifndef PARLEY_COMMON_JOB_CONSISTENCY_CHECK_H_
#define PARLEY_COMMON_JOB_CONSISTENCY_CHECK_H_

#include "common/job/field_check.h"

namespace parley {

// What is wrong with the consistency mode of a job, sync, bounded or async, and with a learning
// rate that hangs on it.
void CheckConsistency(FieldCheck& check);

// With backup workers.
void CheckBackup(FieldCheck& check);

// With steps that are computed before they are decided.
void CheckUpdateAhead(FieldCheck& check);

// With steps that go on without a lost worker, where the job is deterministic.
void CheckLostWorker(FieldCheck& check);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_CONSISTENCY_CHECK_H_
