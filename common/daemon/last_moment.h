#ifndef PARLEY_COMMON_DAEMON_LAST_MOMENT_H_
#define PARLEY_COMMON_DAEMON_LAST_MOMENT_H_

#include <atomic>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock/steady_notification.h"

namespace parley {

// When a process goes at the latest, whatever its main thread does: a preempted worker's step may
// take longer than the job has time, and a file may lie where nothing answers any more. Owns the
// threads that wait for it. Thread-safe.
class LastMoment {
 public:
  // go: ends the process; on a thread of its own.
  explicit LastMoment(std::function<void()> go) : go_(std::move(go)) {}
  LastMoment(const LastMoment&) = delete;
  LastMoment& operator=(const LastMoment&) = delete;
  // The process goes in time: `go` is not called any more.
  ~LastMoment();

  // Of several times the earliest counts; one that has come and does not hold any more (`still`, on
  // a thread of this object's; empty: it does) counts for nothing.
  void SetIn(absl::Duration time, std::function<bool()> still = nullptr);

 private:
  const std::function<void()> go_;
  std::atomic_flag goes_ = ATOMIC_FLAG_INIT;
  SteadyNotification gone_;
  absl::Mutex mu_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_COMMON_DAEMON_LAST_MOMENT_H_
