#ifndef PARLEY_COMMON_CLOCK_STEADY_NOW_H_
#define PARLEY_COMMON_CLOCK_STEADY_NOW_H_

#include "absl/time/time.h"

namespace parley {

// The time by which this process measures, waits and gives up: the wall clock's when it is first
// asked, and from then on what the monotonic clock adds to it. Whoever sets the machine's clock
// ends nobody's lease by that, and puts off no deadline.
//
// It means something within one process only: others are told durations. For people and files there
// is absl::Now. Thread-safe.
absl::Time SteadyNow();

}  // namespace parley

#endif  // PARLEY_COMMON_CLOCK_STEADY_NOW_H_
