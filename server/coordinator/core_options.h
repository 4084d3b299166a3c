#ifndef PARLEY_SERVER_COORDINATOR_CORE_OPTIONS_H_
#define PARLEY_SERVER_COORDINATOR_CORE_OPTIONS_H_

#include "server/coordinator/coordinator.h"

namespace parley {

// What the job file says; where checkpoints lie and what an earlier run has left is the caller's.
// job: as LoadJob gives it.
CoordinatorCore::Options CoreOptions(const JobConfig& job);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_CORE_OPTIONS_H_
