#ifndef PARLEY_COMMON_CLOCK_CLOCK_WATCH_H_
#define PARLEY_COMMON_CLOCK_CLOCK_WATCH_H_

#include <atomic>
#include <functional>
#include <list>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace parley {

// Notices that the machine's clock has been set, and wakes those who sleep until a time of it, so
// that they look again how long they want to: Abseil's timed waits (of 2022) are such sleep,
// whatever they are given, and with them gRPC's timers. Has a list of who sleeps. Thread-safe.
class ClockWatch {
 public:
  // How far the wall clock is ahead of the monotonic one, which nobody sets.
  using Offset = std::function<absl::Duration()>;

  explicit ClockWatch(Offset offset) : offset_(std::move(offset)), known_(offset_()) {}
  ClockWatch(const ClockWatch&) = delete;
  ClockWatch& operator=(const ClockWatch&) = delete;

  // This process's, with a thread that looks ten times in a second. Never goes.
  static ClockWatch& OfProcess();

  // One who sleeps with `mu` given up, on a condition that `woken` is a part of. Made and destroyed
  // with `mu` held.
  class Sleeper {
   public:
    Sleeper(ClockWatch& watch, absl::Mutex& mu);
    ~Sleeper();
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;

    bool woken() const { return woken_; }
    // Before the sleeper reads how long it wants to sleep.
    void BeginSleep() { woken_ = false; }

   private:
    friend class ClockWatch;

    ClockWatch& watch_;
    absl::Mutex& mu_;
    std::atomic<bool> woken_ = false;
    std::list<Sleeper*>::iterator place_;
  };

  // `listener` is called, on the thread that looks, when the clock has been set. It must not block
  // nor listen itself.
  void Listen(std::function<void()> listener);

  // Compares the clocks. True: somebody who is to wake may not have, look again soon.
  bool Look();

 private:
  const Offset offset_;
  absl::Mutex mu_;
  absl::Duration known_ ABSL_GUARDED_BY(mu_);
  std::list<Sleeper*> sleepers_ ABSL_GUARDED_BY(mu_);
  std::vector<std::function<void()>> listeners_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_COMMON_CLOCK_CLOCK_WATCH_H_
