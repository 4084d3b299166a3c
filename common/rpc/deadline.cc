#include "common/rpc/deadline.h"

#include "common/clock/clock_watch.h"
#include "common/clock/steady_now.h"

// gRPC's own (1.51, src/core/lib/iomgr/timer.h): whoever sleeps until the next timer is due looks
// at the timers again. Its API has nothing that does so: a new timer wakes it only if it is due
// before those that are overdue by now. Weak, since other versions may not have it.
__attribute__((weak)) void grpc_kick_poller();

namespace parley {
namespace {

using std::chrono::system_clock;

}  // namespace

system_clock::time_point ToGrpcDeadline(absl::Time deadline) {
  const absl::Duration left = deadline - SteadyNow();
  return absl::ToChronoTime(absl::FromChrono(system_clock::now()) + left);
}

absl::Time FromGrpcDeadline(system_clock::time_point deadline, absl::Time latest) {
  const absl::Time now = SteadyNow();
  const absl::Time wall_now = absl::FromChrono(system_clock::now());
  if (deadline >= absl::ToChronoTime(wall_now + (latest - now))) return latest;
  return now + (absl::FromChrono(deadline) - wall_now);
}

void WakeGrpcWhenTheClockIsSet() {
  static const bool listens = [] {
    ClockWatch::OfProcess().Listen([] {
      if (grpc_kick_poller != nullptr) grpc_kick_poller();
    });
    return true;
  }();
  (void)listens;
}

}  // namespace parley
