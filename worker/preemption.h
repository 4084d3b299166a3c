#ifndef PARLEY_WORKER_PREEMPTION_H_
#define PARLEY_WORKER_PREEMPTION_H_

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace parley {

// What a signal to go (SIGTERM, SIGINT, SIGUSR1) means for a worker, by what it is doing: during
// the steps the running one is finished first; before them there is nothing to finish. Thread-safe.
class Preemption {
 public:
  // The worker does something that a signal may break off, from now until StepsBegin or the next
  // call: `leave(name of the signal)` runs on the signals' thread. At once if a signal has come
  // already.
  void BreakOffBy(std::function<void(const std::string& signal)> leave);

  // From the signals' thread.
  void Signal(int signal);

  // From the training thread, before each step: the name of the signal that has come, or an empty
  // text. The first call says that the steps begin.
  std::string AskedBeforeStep();

  // No signal matters any more: waits for a `leave` that is running, and lets no other begin.
  void Over();

 private:
  bool NobodyLeaves() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return leaving_ == 0; }
  // Runs leave(signal) outside the lock.
  void Leave(const std::function<void(const std::string&)>& leave, const std::string& signal);

  absl::Mutex mu_;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  int leaving_ ABSL_GUARDED_BY(mu_) = 0;  // calls of `leave` that run
  std::string signal_ ABSL_GUARDED_BY(mu_);
  std::function<void(const std::string&)> leave_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_WORKER_PREEMPTION_H_
