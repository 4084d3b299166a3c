#ifndef PARLEY_COMMON_JOB_OWN_PROGRAM_H_
#define PARLEY_COMMON_JOB_OWN_PROGRAM_H_

#include "proto/job.pb.h"

namespace parley {

// Whether a program of the user's own trains the job in place of parley-worker, since it alone has
// the model or the data (docs/api.md, Your own program).
inline bool NeedsOwnProgram(const JobConfig& job) {
  return job.model().has_own() || job.data().has_own();
}

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_OWN_PROGRAM_H_
