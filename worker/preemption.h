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

  // From now on SIGTERM and SIGUSR1 only call `tell(name of the signal)`, the first of them, on the
  // signals' thread; `tell` must not wait.
  void GoOnAfter(std::function<void(const std::string& signal)> tell);

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
  // Runs leave(signal) outside the lock.
  void Run(const Leave& leave, const std::string& signal);

  absl::Mutex mu_;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  bool told_ ABSL_GUARDED_BY(mu_) = false;
  int leaving_ ABSL_GUARDED_BY(mu_) = 0;  // calls of `leave`, `tell` and `heard` that run
  std::string signal_ ABSL_GUARDED_BY(mu_);
  Leave leave_ ABSL_GUARDED_BY(mu_);
  Leave tell_ ABSL_GUARDED_BY(mu_);
  Leave heard_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_WORKER_PREEMPTION_H_
