#ifndef PARLEY_CLIENT_MANUAL_TIMERS_H_
#define PARLEY_CLIENT_MANUAL_TIMERS_H_

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "client/runtime.h"
#include "client/timers.h"

namespace parley {

// For tests: virtual time, which passes only as the test says. Tasks run on the test's thread,
// inside Advance and RunNext. Not thread-safe.
class ManualTimers final : public Timers {
 public:
  absl::Time Now() const override { return now_; }
  void RunAt(absl::Time when, std::function<void()> task) override {
    if (!stopped_) tasks_.emplace(std::pair(when, calls_++), std::move(task));
  }
  void Stop() override {
    stopped_ = true;
    tasks_.clear();
  }

  // Runs the next task at its time; false if there is none.
  bool RunNext() {
    if (tasks_.empty()) return false;
    now_ = std::max(now_, tasks_.begin()->first.first);
    std::function<void()> task = std::move(tasks_.begin()->second);
    tasks_.erase(tasks_.begin());
    task();
    return true;
  }

  // Lets this much time pass, with all tasks that become due in it; zero: those that are due now.
  void Advance(absl::Duration by) {
    const absl::Time end = now_ + by;
    while (!tasks_.empty() && tasks_.begin()->first.first <= end) RunNext();
    now_ = std::max(now_, end);
  }

  // Time passes inside a task: it waits for something, and no other task runs meanwhile.
  void PassInTask(absl::Duration by) { now_ += by; }

 private:
  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  int calls_ = 0;
  bool stopped_ = false;
  std::map<std::pair<absl::Time, int>, std::function<void()>> tasks_;
};

// A runtime whose only timers are these, which must outlive it. Nothing ever waits: Await says at
// once what is.
class ManualRuntime final : public Runtime {
 public:
  explicit ManualRuntime(ManualTimers* timers) : timers_(timers, [](ManualTimers*) {}) {}

  absl::Time Now() const override { return timers_->Now(); }
  std::shared_ptr<Timers> MakeTimers() override { return timers_; }
  bool Await(absl::Mutex&, const absl::Condition& condition, absl::Time) override {
    return condition.Eval();
  }
  uint64_t DrawIncarnation() override { return ++incarnations_; }
  int64_t pid() const override { return 1; }

 private:
  const std::shared_ptr<ManualTimers> timers_;
  uint64_t incarnations_ = 0;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_MANUAL_TIMERS_H_
