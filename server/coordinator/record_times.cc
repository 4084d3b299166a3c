#include "server/coordinator/record_times.h"

#include <algorithm>
#include <cstdint>

namespace parley {
namespace {

// In microseconds since 1970; 0: no time.
int64_t Moved(int64_t micros, absl::Duration by, absl::Time latest) {
  if (micros == 0) return 0;
  return absl::ToUnixMicros(std::min(absl::FromUnixMicros(micros) + by, latest));
}

void MoveTimes(CoordinatorState& state, absl::Duration by, absl::Time now) {
  for (LoggedVacancy& vacancy : *state.mutable_vacancies()) {
    vacancy.set_heard_unix_micros(Moved(vacancy.heard_unix_micros(), by, now));
    vacancy.set_since_unix_micros(Moved(vacancy.since_unix_micros(), by, now));
  }
  if (state.has_progress()) {
    LoggedProgress& progress = *state.mutable_progress();
    progress.set_started_unix_micros(Moved(progress.started_unix_micros(), by, now));
    progress.set_stopped_unix_micros(Moved(progress.stopped_unix_micros(), by, now));
  }
  if (state.has_preemption()) {
    LoggedPreemption& preemption = *state.mutable_preemption();
    preemption.set_end_unix_micros(
        Moved(preemption.end_unix_micros(), by, now + absl::Microseconds(preemption.micros())));
  }
}

}  // namespace

CoordinatorState ToRecordTimes(CoordinatorState state, absl::Duration wall_ahead) {
  MoveTimes(state, wall_ahead, absl::InfiniteFuture());
  return state;
}

CoordinatorState FromRecordTimes(CoordinatorState state, absl::Duration wall_ahead,
                                 absl::Time now) {
  MoveTimes(state, -wall_ahead, now);
  return state;
}

}  // namespace parley
