#ifndef PARLEY_SERVER_PARAMETER_SHARD_PARKED_TIME_H_
#define PARLEY_SERVER_PARAMETER_SHARD_PARKED_TIME_H_

#include <algorithm>

#include "absl/time/time.h"

namespace parley {

// How long a call may be parked whose caller waits so long: a little less, so that it learns who is
// missing and not only that it waited.
inline absl::Duration Parked(absl::Duration patience) {
  return patience - std::min(absl::Milliseconds(500), patience / 5);
}

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_PARKED_TIME_H_
