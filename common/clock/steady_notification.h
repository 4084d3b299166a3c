#ifndef PARLEY_COMMON_CLOCK_STEADY_NOTIFICATION_H_
#define PARLEY_COMMON_CLOCK_STEADY_NOTIFICATION_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock/await.h"

namespace parley {

// As absl::Notification, for waits with a limit: the machine's clock may be set meanwhile.
// Thread-safe; it may go as soon as it is known to have come.
class SteadyNotification {
 public:
  SteadyNotification() = default;
  SteadyNotification(const SteadyNotification&) = delete;
  SteadyNotification& operator=(const SteadyNotification&) = delete;
  // Waits for the end of a Notify that somebody has seen already.
  ~SteadyNotification() { absl::MutexLock lock(&mu_); }

  void Notify() {
    absl::MutexLock lock(&mu_);
    came_ = true;
  }

  bool HasBeenNotified() const {
    absl::MutexLock lock(&mu_);
    return came_;
  }

  // False: it has not come by then. `deadline` is of SteadyNow.
  bool WaitUntil(absl::Time deadline) const {
    absl::MutexLock lock(&mu_);
    return AwaitUntil(mu_, absl::Condition(&came_), deadline);
  }
  bool WaitFor(absl::Duration limit) const {
    absl::MutexLock lock(&mu_);
    return AwaitFor(mu_, absl::Condition(&came_), limit);
  }

 private:
  mutable absl::Mutex mu_;
  bool came_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace parley

#endif  // PARLEY_COMMON_CLOCK_STEADY_NOTIFICATION_H_
