#ifndef PARLEY_SERVER_COORDINATOR_AWAIT_RULE_OR_SIGNAL_H_
#define PARLEY_SERVER_COORDINATOR_AWAIT_RULE_OR_SIGNAL_H_

#include "absl/status/statusor.h"
#include "common/daemon/daemon.h"
#include "common/file_system.h"
#include "server/coordinator/job_directory.h"
#include "server/coordinator/job_log.h"

namespace parley {

// AwaitRule in a process: in real time, asking over gRPC; a signal to the daemon ends it
// (CANCELLED). stands_by: again, as long as another one rules; says in *stood_by that one did.
// After the daemon's TakeCredentials, before it serves.
absl::StatusOr<JobLog> AwaitRuleOrSignal(Daemon& daemon, FileSystem& files,
                                         const JobDirectory& directory, bool stands_by,
                                         bool* stood_by);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_AWAIT_RULE_OR_SIGNAL_H_
