#ifndef PARLEY_COMMON_CLOCK_CLOCK_WATCH_H_
#define PARLEY_COMMON_CLOCK_CLOCK_WATCH_H_

#include <atomic>
#include <functional>
#include <list>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace parley {

// Notices that the machine's clock has been set, and wakes those who sleep until a time of it, so
// that they look again how long they want to: Abseil's timed waits (of 2022) are such sleep,
// whatever they are given, and with them gRPC's timers. Has a list of who sleeps. Thread-safe.
class ClockWatch {
 public:
  // How far the wall clock is ahead of one that nobody sets.
  using Offset = std::function<absl::Duration()>;

  explicit ClockWatch(Offset offset) : offset_(std::move(offset)), known_(offset_()) {}
  ClockWatch(const ClockWatch&) = delete;
  ClockWatch& operator=(const ClockWatch&) = delete;

  // This process's, with a thread that looks ten times in a second. Never goes.
  static ClockWatch& OfProcess();

  // One who sleeps with `mu` given up, on a condition that `woken` is a part of. Made and destroyed
  // with `mu` held. What is waited for with that mutex must lock nothing.
  class Sleeper {
   public:
    Sleeper(ClockWatch& watch, absl::Mutex& mu);
    ~Sleeper();
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;

    bool woken() const { return woken_; }
    // Before the sleeper reads the clocks for how long it wants to sleep.
    void BeginSleep();

   private:
    friend class ClockWatch;

    ClockWatch& watch_;
    absl::Mutex& mu_;
    std::atomic<bool> woken_ = false;
    absl::Duration offset_;  // when it began to sleep; guarded by watch_.mu_
    std::list<Sleeper*>::iterator place_;
  };

  // One who hears, on the thread that looks, by how much the clock has been set; the last to come
  // first. While `hear` runs nobody is woken, and none may come or go.
  class Listener {
   public:
    using Hear = std::function<void(absl::Duration by)>;

    Listener(ClockWatch& watch, Hear hear);
    // `hear` is not called any more.
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

   private:
    ClockWatch& watch_;
    std::list<Hear>::iterator place_;
  };

  // Compares the clocks. True: somebody who is to wake may not have, look again soon.
  bool Look();

 private:
  // By how much the clock has been set since the last time; zero: it has not.
  absl::Duration Compare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // True: not all are known to have woken.
  bool Wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Offset offset_;
  absl::Mutex mu_;
  absl::Duration known_ ABSL_GUARDED_BY(mu_);
  std::list<Sleeper*> sleepers_ ABSL_GUARDED_BY(mu_);

  // Of its own: who sleeps must not wait for who hears.
  absl::Mutex listeners_mu_;
  std::list<Listener::Hear> listeners_ ABSL_GUARDED_BY(listeners_mu_);
};

}  // namespace parley

#endif  // PARLEY_COMMON_CLOCK_CLOCK_WATCH_H_
