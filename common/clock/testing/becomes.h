#ifndef PARLEY_COMMON_CLOCK_TESTING_BECOMES_H_
#define PARLEY_COMMON_CLOCK_TESTING_BECOMES_H_

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock/steady_now.h"

namespace parley {

// Whether it holds before a test gives up: for what no lock or notification tells of.
inline bool Becomes(absl::FunctionRef<bool()> holds, absl::Duration patience = absl::Seconds(30)) {
  const absl::Time end = SteadyNow() + patience;
  while (!holds()) {
    if (SteadyNow() >= end) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace parley

#endif  // PARLEY_COMMON_CLOCK_TESTING_BECOMES_H_
