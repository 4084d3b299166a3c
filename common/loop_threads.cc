#include "common/loop_threads.h"

#include <pthread.h>

#include "absl/time/time.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

// A helper's last piece takes about as long as to sleep and be woken.
constexpr absl::Duration kLook = absl::Microseconds(100);

}  // namespace

LoopThreads::LoopThreads(size_t helpers) {
  cpu_set_t cores;
  if (helpers > 0 && ::sched_getaffinity(0, sizeof(cores), &cores) == 0 &&
      helpers + 1 >= static_cast<size_t>(CPU_COUNT(&cores))) {
    absl::MutexLock lock(&mu_);
    cores_ = cores;
  }
  threads_.reserve(helpers);
  for (size_t i = 0; i < helpers; ++i) threads_.emplace_back([this] { Help(); });
}

LoopThreads::~LoopThreads() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void LoopThreads::Run(size_t count, const std::function<void(size_t)>& body) {
  Loop loop;
  loop.body = &body;
  loop.count = count;
  bool helped = false;
  if (count > 1 && !threads_.empty()) {
    absl::MutexLock lock(&mu_);
    helped = loop_ == nullptr;
    if (helped) {
      KeepOffThisCore();
      loop_ = &loop;
    }
  }
  Work(loop);
  if (!helped) return;
  for (const absl::Time until = SteadyNow() + kLook; !NobodyHelps() && SteadyNow() < until;) {
    (void)::sched_yield();
  }
  absl::MutexLock lock(&mu_);
  // Nobody begins to help any more: nothing is left.
  mu_.Await(absl::Condition(this, &LoopThreads::NobodyHelps));
  loop_ = nullptr;
}

void LoopThreads::KeepOffThisCore() {
  if (!cores_.has_value()) return;
  const int here = ::sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE || here == kept_off_) return;
  cpu_set_t others = *cores_;
  CPU_CLR(here, &others);
  if (CPU_COUNT(&others) == 0) return;
  // Where it is not allowed, a loop only takes longer.
  for (std::thread& thread : threads_) {
    (void)::pthread_setaffinity_np(thread.native_handle(), sizeof(others), &others);
  }
  kept_off_ = here;
}

void LoopThreads::Work(Loop& loop) {
  for (size_t i = loop.next++; i < loop.count; i = loop.next++) (*loop.body)(i);
}

void LoopThreads::Help() {
  while (true) {
    Loop* loop = nullptr;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &LoopThreads::HasWork));
      if (stop_) return;
      loop = loop_;
      ++helping_;
    }
    Work(*loop);
    absl::MutexLock lock(&mu_);
    --helping_;
  }
}

}  // namespace parley
