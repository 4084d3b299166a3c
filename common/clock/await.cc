#include "common/clock/await.h"

#include <chrono>

#include "common/clock/clock_watch.h"
#include "common/clock/steady_now.h"

namespace parley {

bool AwaitUntil(absl::Mutex& mu, const absl::Condition& condition, absl::Time deadline) {
  if (condition.Eval()) return true;
  if (deadline == absl::InfiniteFuture()) {
    mu.Await(condition);
    return true;
  }
  ClockWatch::Sleeper sleeper(ClockWatch::OfProcess(), mu);
  const auto wakes = [&] { return sleeper.woken() || condition.Eval(); };
  while (true) {
    sleeper.BeginSleep();
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) return condition.Eval();
    // By the clock that the kernel goes by: absl::Now hears of its setting two seconds later.
    const absl::Time wall_now = absl::FromChrono(std::chrono::system_clock::now());
    (void)mu.AwaitWithDeadline(absl::Condition(&wakes), wall_now + left);
    if (condition.Eval()) return true;
  }
}

bool AwaitFor(absl::Mutex& mu, const absl::Condition& condition, absl::Duration limit) {
  return AwaitUntil(mu, condition, SteadyNow() + limit);
}

}  // namespace parley
