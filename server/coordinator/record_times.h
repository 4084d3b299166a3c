#ifndef PARLEY_SERVER_COORDINATOR_RECORD_TIMES_H_
#define PARLEY_SERVER_COORDINATOR_RECORD_TIMES_H_

#include "absl/time/time.h"
#include "proto/coordinator_log.pb.h"

namespace parley {

// A coordinator's state has times by the clock of its process (common/clock/steady_now.h), its
// record by the wall clock, which the next coordinator has, too.
// wall_ahead: WallAheadOfSteady, of whoever writes and of whoever reads.

CoordinatorState ToRecordTimes(CoordinatorState state, absl::Duration wall_ahead);

// `now`: of the reading process. Nothing that has been is later than that, and who was told to end
// has no more time than then, whatever the wall clock was set to between the two.
CoordinatorState FromRecordTimes(CoordinatorState state, absl::Duration wall_ahead, absl::Time now);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_RECORD_TIMES_H_
