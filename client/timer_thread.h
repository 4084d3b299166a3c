#ifndef PARLEY_CLIENT_TIMER_THREAD_H_
#define PARLEY_CLIENT_TIMER_THREAD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/timers.h"

namespace parley {

// Timers of the real clock with one thread of its own. With tasks for InfinitePast it is an
// executor that runs them in order.
class TimerThread final : public Timers {
 public:
  TimerThread();
  ~TimerThread() override { Stop(); }

  absl::Time Now() const override;
  void RunAt(absl::Time when, std::function<void()> task) override;

  // Ends the thread too. Waits for the task that runs, unless that one calls it. The first call
  // must have returned before the last owner goes.
  void Stop() override;

 private:
  using Key = std::pair<absl::Time, uint64_t>;  // when, and the call's number

  void Run();
  bool Changed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopped_ || (!tasks_.empty() && tasks_.begin()->first < waiting_for_);
  }

  absl::Mutex mu_;
  std::map<Key, std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  Key waiting_for_ ABSL_GUARDED_BY(mu_);
  uint64_t calls_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool joined_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace parley

#endif  // PARLEY_CLIENT_TIMER_THREAD_H_
