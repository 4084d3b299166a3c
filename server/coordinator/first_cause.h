#ifndef PARLEY_SERVER_COORDINATOR_FIRST_CAUSE_H_
#define PARLEY_SERVER_COORDINATOR_FIRST_CAUSE_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/describe_member.h"
#include "common/utc_text.h"
#include "proto/types.pb.h"

namespace parley {

// Why a job failed, as every process prints it. Composed here alone, so that all texts are the
// same.

// A reason that somebody gave as such a text has it, which is one line, the last on stderr: without
// what a message cannot have, and not without end.
std::string OneLine(const std::string& text);

// `worker 1 at HOST:PORT (pid P) has not been heard of since T (10.0 s); last decided step S`
FirstCause LostMember(const Member& member, absl::Time heard_at, absl::Time now, uint64_t step);
// `worker 1 at HOST:PORT (pid P) is alive but has made no progress since T (600.0 s); last decided
// ...`
FirstCause StalledMember(const Member& member, absl::Time since, absl::Time now, uint64_t step);
// `worker 1 at HOST:PORT (pid P): REASON; last decided step S`
FirstCause ReportedBy(const Member& member, const std::string& reason, bool preempted,
                      uint64_t step);
// `coordinator at HOST:PORT: REASON; last decided step S`
FirstCause OfCoordinator(const std::string& address, const std::string& reason, bool preempted,
                         uint64_t step);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_FIRST_CAUSE_H_
