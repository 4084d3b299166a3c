#ifndef PARLEY_COMMON_CLOCK_STEADY_NOW_H_
#define PARLEY_COMMON_CLOCK_STEADY_NOW_H_

#include "absl/time/time.h"

namespace parley {

// The time by which this process measures, waits and gives up: the wall clock's when it is first
// asked, and from then on what the monotonic clock adds to it. Whoever sets the machine's clock
// ends nobody's lease by that, and puts off no deadline. Thread-safe.
//
// It means something within one process only: others are told durations, and what is written for
// them, or for people, is translated by WallAheadOfSteady. (In messages of cores, which know no
// clock, a time is the process's own: it is that of the clock before it was set.)
absl::Time SteadyNow();

// How far the wall clock is ahead by what it was set by since then: zero, or 10 ms and more. (To
// slew it, as NTP mostly does, slews the monotonic clock alike.) Thread-safe.
absl::Duration WallAheadOfSteady();

// The time at which the monotonic clock was zero. What is loaded into a process with code of its
// own (a plugin of devices) takes the program's, before it asks for the time: the two hand each
// other times.
absl::Time SteadyEpoch();
void TakeSteadyEpoch(absl::Time of_program);

}  // namespace parley

#endif  // PARLEY_COMMON_CLOCK_STEADY_NOW_H_
