#ifndef PARLEY_COMMON_LOOP_THREADS_H_
#define PARLEY_COMMON_LOOP_THREADS_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace parley {

// Threads that help with loops; a ParallelFor (common/parallel_for.h). Owned by a process, which
// makes one. Thread-safe: one loop has the threads at a time, another one that comes meanwhile runs
// on its caller's thread alone.
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
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stop_ || (loop_ != nullptr && loop_->next < loop_->count);
  }
  bool NobodyHelps() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return helping_ == 0; }

  absl::Mutex mu_;
  Loop* loop_ ABSL_GUARDED_BY(mu_) = nullptr;
  size_t helping_ ABSL_GUARDED_BY(mu_) = 0;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_LOOP_THREADS_H_
