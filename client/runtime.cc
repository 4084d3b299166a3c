#include "client/runtime.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "client/timer_thread.h"
#include "common/clock/await.h"
#include "common/clock/steady_now.h"
#include "common/host_name.h"
#include "common/loop_threads.h"
#include "common/seed.h"
#include "common/usable_cores.h"

namespace parley {
namespace {

constexpr absl::Duration kLook = absl::Microseconds(50);
constexpr size_t kMostThreads = 4;  // more do not make memory faster

class MachineRuntime final : public Runtime {
 public:
  absl::Time Now() const override { return SteadyNow(); }
  std::shared_ptr<Timers> MakeTimers() override { return std::make_shared<TimerThread>(); }
  bool Await(absl::Mutex& mu, const absl::Condition& condition, absl::Time deadline) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    // As LocalSocket::Receive: what is awaited often comes sooner than a thread wakes.
    const absl::Time sleep_at = std::min(deadline, SteadyNow() + kLook);
    while (!condition.Eval()) {
      if (SteadyNow() >= sleep_at) return AwaitUntil(mu, condition, deadline);
      mu.Unlock();
      (void)::sched_yield();
      mu.Lock();
    }
    return true;
  }
  bool RunAside(std::function<void()> task) override {
    // Signals are for the process's other threads, some of which may not be there yet.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool runs = true;
    try {
      std::thread(std::move(task)).detach();
    } catch (const std::system_error&) {
      runs = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return runs;
  }
  uint64_t DrawIncarnation() override { return RandomIncarnation(); }
  int64_t pid() const override { return getpid(); }
  std::string host() const override { return HostName(); }
  // Made when they are needed: most processes have no such loops.
  ParallelFor Loops() override {
    return [this](size_t count, const std::function<void(size_t)>& body) {
      std::call_once(has_threads_, [this] {
        threads_.emplace(std::min<size_t>(UsableCores(), kMostThreads) - 1);
      });
      threads_->Run(count, body);
    };
  }

 private:
  std::once_flag has_threads_;
  std::optional<LoopThreads> threads_;
};

}  // namespace

std::shared_ptr<Runtime> RealRuntime() { return std::make_shared<MachineRuntime>(); }

}  // namespace parley
