#ifndef PARLEY_COMMON_JOB_CLUSTER_CHECK_H_
#define PARLEY_COMMON_JOB_CLUSTER_CHECK_H_

#include "common/job/field_check.h"

namespace parley {

// What is wrong with how many members of each role a job has.
void CheckMembers(FieldCheck& check);

// With its pipelines, and what they keep a job from having.
void CheckPipelines(FieldCheck& check);

// With its node groups, likewise.
void CheckNodeGroups(FieldCheck& check);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_CLUSTER_CHECK_H_
