#ifndef PARLEY_WORKER_LATE_STEPS_H_
#define PARLEY_WORKER_LATE_STEPS_H_

#include <cstdint>

#include "absl/time/time.h"

namespace parley {

// Which of the steps that the job goes on without, since this worker is late, are worth a line of
// the log: with backup workers a slow one may be late in each of them. Has no clock. Not
// thread-safe.
class LateSteps {
 public:
  // One more. For how many a line speaks now, with those that had none; 0: it is too soon for one.
  uint64_t OneMore(absl::Time now);

 private:
  uint64_t untold_ = 0;
  absl::Time told_ = absl::InfinitePast();
};

}  // namespace parley

#endif  // PARLEY_WORKER_LATE_STEPS_H_
