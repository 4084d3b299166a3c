#ifndef PARLEY_COMMON_CLOCK_AWAIT_H_
#define PARLEY_COMMON_CLOCK_AWAIT_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace parley {

// As absl::Mutex::AwaitWithDeadline and AwaitWithTimeout, but the machine's clock may be set
// meanwhile: they end when `deadline`, of SteadyNow, or `limit` has passed, and give whether
// `condition` holds. `mu` is held, not shared, before and after.

bool AwaitUntil(absl::Mutex& mu, const absl::Condition& condition, absl::Time deadline)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

bool AwaitFor(absl::Mutex& mu, const absl::Condition& condition, absl::Duration limit)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

}  // namespace parley

#endif  // PARLEY_COMMON_CLOCK_AWAIT_H_
