#ifndef PARLEY_WORKER_PREEMPTION_H_
#define PARLEY_WORKER_PREEMPTION_H_

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace parley {

// What a signal to go (SIGTERM, SIGINT, SIGUSR1) means for a worker, by what it is doing. SIGTERM
// and SIGUSR1 of one that has joined a job with a preemption_grace: it goes on as it was, and the
// job ends by itself when a checkpoint is whole. Else, and for SIGINT: during the steps the running
// one is finished first; before them there is nothing to finish. Thread-safe.
class Preemption {
 public:
  // The worker does something that a signal may break off, from now until AskedBeforeStep or the
  // next call: `leave(name of the signal)` runs on the signals' thread. At once if a signal has
  // come already.
  void BreakOffBy(std::function<void(const std::string& signal)> leave);

  // From now on SIGTERM and SIGUSR1 only call `tell(signal)`, on the signals' thread: the first of
  // them, and the first SIGTERM after a SIGUSR1, which leaves less time; `tell` must not wait.
  void GoOnAfter(std::function<void(int signal)> tell);

  // During the steps, where a signal breaks nothing off, it is `heard(name of the signal)` at once,
  // the first of them, on the signals' thread; `heard` must not wait. Before the steps begin.
  void DuringSteps(std::function<void(const std::string& signal)> heard);

  // From the signals' thread.
  void Signal(int signal);

  // From the training thread, before each step: the name of the signal that has come, or an empty
  // text. The first call says that the steps begin.
  std::string AskedBeforeStep();

  // No signal matters any more: waits for a `leave`, `tell` or `heard` that is running, and lets no
  // other begin.
  void Over();

 private:
  using Leave = std::function<void(const std::string&)>;

  bool NobodyLeaves() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return leaving_ == 0; }
  // Runs `leave` or `tell` outside the lock.
  void Run(const std::function<void()>& call);

  absl::Mutex mu_;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  int told_ ABSL_GUARDED_BY(mu_) = 0;     // the last signal that `tell` was called for
  int leaving_ ABSL_GUARDED_BY(mu_) = 0;  // calls of `leave`, `tell` and `heard` that run
  std::string signal_ ABSL_GUARDED_BY(mu_);
  Leave leave_ ABSL_GUARDED_BY(mu_);
  std::function<void(int signal)> tell_ ABSL_GUARDED_BY(mu_);
  Leave heard_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_WORKER_PREEMPTION_H_
