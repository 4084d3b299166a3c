#include "common/worker_threads.h"

#include <utility>

namespace parley {

WorkerThreads::WorkerThreads(size_t count) {
  for (size_t i = 0; i < count; ++i) threads_.emplace_back([this] { Work(); });
}

void WorkerThreads::Run(std::function<void()> task) {
  absl::MutexLock lock(&mu_);
  if (!stopped_) tasks_.push_back(std::move(task));
}

void WorkerThreads::Stop() {
  std::deque<std::function<void()>> dropped;  // destroyed after the lock
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    dropped.swap(tasks_);
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkerThreads::Work() {
  while (true) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &WorkerThreads::HasWork));
      if (stopped_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace parley
