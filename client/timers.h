#ifndef PARLEY_CLIENT_TIMERS_H_
#define PARLEY_CLIENT_TIMERS_H_

#include <functional>

#include "absl/time/time.h"

namespace parley {

// Time and timers together: code that takes both from here can be run in virtual time. Thread-safe.
class Timers {
 public:
  virtual ~Timers() = default;

  virtual absl::Time Now() const = 0;

  // Runs `task` once it is `when`, never inside this call. Tasks run one at a time, by time and
  // then in the order of the calls; they must not block for long.
  virtual void RunAt(absl::Time when, std::function<void()> task) = 0;

  // Drops the tasks that have not begun, and later ones. No task runs after it, except one that
  // calls it. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_TIMERS_H_
