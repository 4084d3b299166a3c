#ifndef PARLEY_COMMON_WORKER_THREADS_H_
#define PARLEY_COMMON_WORKER_THREADS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace parley {

// A few threads that run tasks in the order in which they come; a task may wait. Thread-safe.
class WorkerThreads {
 public:
  explicit WorkerThreads(size_t count);
  ~WorkerThreads() { Stop(); }
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  // Dropped after Stop.
  void Run(std::function<void()> task);

  // Drops what has not begun, and waits for what runs. Idempotent; one thread, which is none of
  // these.
  void Stop();

 private:
  void Work();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopped_ || !tasks_.empty(); }

  absl::Mutex mu_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // last: they use the rest
};

}  // namespace parley

#endif  // PARLEY_COMMON_WORKER_THREADS_H_
