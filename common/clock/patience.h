#ifndef PARLEY_COMMON_CLOCK_PATIENCE_H_
#define PARLEY_COMMON_CLOCK_PATIENCE_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "common/clock/steady_now.h"

namespace parley {

// How long a caller waits, as it goes along with a call beside gRPC in microseconds: clocks of two
// processes need not agree on a deadline. Sender and receiver hold it to an hour at most.
constexpr absl::Duration kMostPatience = absl::Hours(1);

inline int64_t PatienceUntil(absl::Time deadline) {
  return absl::ToInt64Microseconds(
      std::clamp(deadline - SteadyNow(), absl::ZeroDuration(), kMostPatience));
}

// Of what has come, whatever it is.
inline absl::Duration PatienceOf(int64_t microseconds) {
  return std::clamp(absl::Microseconds(microseconds), absl::ZeroDuration(), kMostPatience);
}

}  // namespace parley

#endif  // PARLEY_COMMON_CLOCK_PATIENCE_H_
