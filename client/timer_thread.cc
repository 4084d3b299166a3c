#include "client/timer_thread.h"

#include <limits>

#include "common/clock/await.h"
#include "common/clock/steady_now.h"

namespace parley {

TimerThread::TimerThread() : thread_([this] { Run(); }) {}

absl::Time TimerThread::Now() const { return SteadyNow(); }

void TimerThread::RunAt(absl::Time when, std::function<void()> task) {
  absl::MutexLock lock(&mu_);
  if (stopped_) return;
  tasks_.emplace(Key(when, calls_++), std::move(task));
}

void TimerThread::Stop() {
  std::map<Key, std::function<void()>>
      dropped;  // their captures may call us: destroyed after the lock
  bool join = false;
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    dropped.swap(tasks_);
    join = !joined_ && std::this_thread::get_id() != thread_.get_id();
    joined_ = joined_ || join;
  }
  if (join) thread_.join();
}

void TimerThread::Run() {
  while (true) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mu_);
      while (true) {
        if (stopped_) return;
        const absl::Time next =
            tasks_.empty() ? absl::InfiniteFuture() : tasks_.begin()->first.first;
        if (next <= SteadyNow()) break;
        waiting_for_ = tasks_.empty()
                           ? Key(absl::InfiniteFuture(), std::numeric_limits<uint64_t>::max())
                           : tasks_.begin()->first;
        (void)AwaitUntil(mu_, absl::Condition(this, &TimerThread::Changed), next);
      }
      task = std::move(tasks_.begin()->second);
      tasks_.erase(tasks_.begin());
    }
    task();
  }
}

}  // namespace parley
