#ifndef PARLEY_COMMON_CLOCK_TESTING_SETTABLE_CLOCK_H_
#define PARLEY_COMMON_CLOCK_TESTING_SETTABLE_CLOCK_H_

#include "absl/time/time.h"

namespace parley {

// Sets the wall clock of this process so far ahead of the machine's, as an operator or NTP sets a
// machine's: all that is linked with this reads it so, and Abseil's and gRPC's timed waits end when
// it, not the machine's, says so. The monotonic clock goes on as it is. Negative: back. For tests.
//
// As a library that is loaded before a program (libsettable_clock.so, by LD_PRELOAD) it takes the
// nanoseconds, 8 bytes, from the file that SETTABLE_CLOCK names, at every reading.
void SetWallClockAhead(absl::Duration ahead);

}  // namespace parley

#endif  // PARLEY_COMMON_CLOCK_TESTING_SETTABLE_CLOCK_H_
