#include "common/clock/steady_now.h"

#include <atomic>
#include <chrono>
#include <cstdint>

namespace parley {
namespace {

// Less is nobody's setting, but the time between two readings.
constexpr absl::Duration kSet = absl::Milliseconds(10);

// Nanoseconds since a clock's own epoch.
template <class Clock>
int64_t Read() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

int64_t Monotonic() { return Read<std::chrono::steady_clock>(); }

// Not by absl::Now: that goes by the processor's counter, and hears two seconds later that the
// clock was set.
int64_t Wall() { return Read<std::chrono::system_clock>(); }

// When the monotonic clock was zero, in nanoseconds of the wall clock's epoch.
std::atomic<int64_t>& Epoch() {
  static std::atomic<int64_t> epoch = Wall() - Monotonic();
  return epoch;
}

int64_t Steady() { return Epoch().load(std::memory_order_relaxed) + Monotonic(); }

}  // namespace

absl::Time SteadyNow() { return absl::FromUnixNanos(Steady()); }

absl::Duration WallAheadOfSteady() {
  absl::Duration ahead;
  // A thread may lose its core between two readings.
  for (int tries = 0; tries < 10; ++tries) {
    const int64_t steady = Steady();
    ahead = absl::Nanoseconds(Wall() - steady);
    if (absl::Nanoseconds(Steady() - steady) < absl::Milliseconds(1)) break;
  }
  return absl::AbsDuration(ahead) < kSet ? absl::ZeroDuration() : ahead;
}

absl::Time SteadyEpoch() { return absl::FromUnixNanos(Epoch()); }

void TakeSteadyEpoch(absl::Time of_program) { Epoch() = absl::ToUnixNanos(of_program); }

}  // namespace parley
