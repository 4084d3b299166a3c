#ifndef PARLEY_COMMON_RPC_DEADLINE_H_
#define PARLEY_COMMON_RPC_DEADLINE_H_

#include <chrono>

#include "absl/time/time.h"

namespace parley {

// Between the time that parley goes by, SteadyNow, and gRPC's, which is given deadlines by the wall
// clock as it is set just then, and counts by the monotonic one from there on.

std::chrono::system_clock::time_point ToGrpcDeadline(absl::Time deadline);

// Never later than `latest`: gRPC's "none" is later than all.
absl::Time FromGrpcDeadline(std::chrono::system_clock::time_point deadline, absl::Time latest);

// gRPC's own timers sleep until a time of the wall clock, with Abseil's waits. From the first call
// on those of deadlines and of connections are woken when that has been set; else calls to peers
// that do not answer would end as much later as it was set back. Called by whoever makes channels
// and servers.
void WakeGrpcWhenTheClockIsSet();

// Whether it has ever been since then: the timers by which channels connect again nobody can wake,
// nor tell when they are right again (ReconnectAfterClockIsSet in channel.h).
bool TheClockWasSet();

}  // namespace parley

#endif  // PARLEY_COMMON_RPC_DEADLINE_H_
