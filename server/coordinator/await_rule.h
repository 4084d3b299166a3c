#ifndef PARLEY_SERVER_COORDINATOR_AWAIT_RULE_H_
#define PARLEY_SERVER_COORDINATOR_AWAIT_RULE_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/file_system.h"
#include "proto/coordinator.pb.h"
#include "server/coordinator/job_directory.h"
#include "server/coordinator/job_log.h"

namespace parley {

// What Succession has to be given: time, and calls.
struct SuccessionSeams {
  std::function<absl::Time()> now;
  // Waits; false if the process is to stop instead (a signal).
  std::function<bool(absl::Time until)> wait;
  // GetStatus at an address (host:port), with a deadline of liveness / 4 or so.
  std::function<absl::StatusOr<GetStatusReply>(const std::string& address)> ask;
};

// Waits, on the caller's thread, until this process may take the rule of the job, and returns the
// log as it is then: JobLog::Take follows. Writes nothing. Call it before the process serves at an
// address of its own, lest it asks itself.
//   ALREADY_EXISTS  a coordinator of this job answers
//   CANCELLED       `wait` said so
//   the codes of Succession and of JobLog::Open
absl::StatusOr<JobLog> AwaitRule(FileSystem& files, const JobDirectory& directory,
                                 const std::string& job, absl::Duration liveness,
                                 const SuccessionSeams& seams);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_AWAIT_RULE_H_
