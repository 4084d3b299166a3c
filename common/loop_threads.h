#ifndef PARLEY_COMMON_LOOP_THREADS_H_
#define PARLEY_COMMON_LOOP_THREADS_H_

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace parley {

// Threads that help with loops; a ParallelFor (common/parallel_for.h). Owned by a process, which
// makes one. Thread-safe: one loop has the threads at a time, another one that comes meanwhile runs
// on its caller's thread alone. Where there are as many helpers as other cores they keep off the
// core that their caller is on.
class LoopThreads {
 public:
  // `helpers`: beside the caller's thread; none is allowed.
  explicit LoopThreads(size_t helpers);
  ~LoopThreads();
  LoopThreads(const LoopThreads&) = delete;
  LoopThreads& operator=(const LoopThreads&) = delete;

  // As ParallelFor. `body` must not call Run.
  void Run(size_t count, const std::function<void(size_t)>& body);

 private:
  struct Loop {
    const std::function<void(size_t)>* body = nullptr;
    size_t count = 0;
    std::atomic<size_t> next = 0;
  };

  static void Work(Loop& loop);
  void Help();
  // A helper that wakes on its caller's core gets nothing done before that one's time slice ends,
  // and the scheduler puts it there where no core is idle, as beside threads that wait by looking.
  void KeepOffThisCore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stop_ || (loop_ != nullptr && loop_->next < loop_->count);
  }
  bool NobodyHelps() const { return helping_ == 0; }

  absl::Mutex mu_;
  Loop* loop_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::atomic<size_t> helping_ = 0;  // changed under the lock
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  // Where helpers may run; set if they would take all of these cores beside the caller's.
  std::optional<cpu_set_t> cores_ ABSL_GUARDED_BY(mu_);
  int kept_off_ ABSL_GUARDED_BY(mu_) = -1;
  std::vector<std::thread> threads_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_LOOP_THREADS_H_
