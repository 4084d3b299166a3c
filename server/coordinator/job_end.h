#ifndef PARLEY_SERVER_COORDINATOR_JOB_END_H_
#define PARLEY_SERVER_COORDINATOR_JOB_END_H_

#include <optional>
#include <string>

#include "common/daemon/exit_code.h"
#include "proto/coordinator_log.pb.h"

namespace parley {

// How the coordinator of a job ends.
struct JobEnd {
  ExitCode code = kFinished;
  std::string text;  // the last line on stderr
};

// What is left to do for a coordinator that comes in place of another one and finds in the log that
// its job is over: to end as that one did. Nothing, where it is to begin or to go on: the job is
// under way, its members come back (they were preempted), or the last run was another one.
// `last`: the log's last state; `fingerprint`: that of the job file; `stood_by`: the job was under
// way when this coordinator came, so that the end in the log is its own.
std::optional<JobEnd> EndedMeanwhile(const CoordinatorState& last, const std::string& fingerprint,
                                     bool stood_by);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_JOB_END_H_
