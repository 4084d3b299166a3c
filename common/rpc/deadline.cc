#include "common/rpc/deadline.h"

#include <grpc/grpc.h>

#include <algorithm>
#include <atomic>

#include "common/clock/clock_watch.h"
#include "common/clock/steady_now.h"

// gRPC's own (1.51, src/core/lib/iomgr/timer.h): whoever sleeps until the next timer is due looks
// at the timers again. Its API has nothing that does so: a new timer wakes it only if it is due
// before those that are overdue by now. Weak, since other versions may not have it.
__attribute__((weak)) void grpc_kick_poller();

namespace parley {
namespace {

using std::chrono::system_clock;

std::atomic<bool> was_set = false;

}  // namespace

system_clock::time_point ToGrpcDeadline(absl::Time deadline) {
  // One that is long over would be none.
  const absl::Duration left = std::max(deadline - SteadyNow(), absl::ZeroDuration());
  return absl::ToChronoTime(absl::FromChrono(system_clock::now()) + left);
}

absl::Time FromGrpcDeadline(system_clock::time_point deadline, absl::Time latest) {
  const absl::Time now = SteadyNow();
  const absl::Time wall_now = absl::FromChrono(system_clock::now());
  if (deadline >= absl::ToChronoTime(wall_now + (latest - now))) return latest;
  return now + (absl::FromChrono(deadline) - wall_now);
}

void WakeGrpcWhenTheClockIsSet() {
  static const ClockWatch::Listener listener(ClockWatch::OfProcess(), [](absl::Duration) {
    was_set = true;
    if (grpc_kick_poller != nullptr && grpc_is_initialized() != 0) grpc_kick_poller();
  });
}

bool TheClockWasSet() { return was_set; }

}  // namespace parley
