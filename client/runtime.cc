#include "client/runtime.h"

#include <unistd.h>

#include "absl/time/clock.h"
#include "client/timer_thread.h"
#include "common/seed.h"

namespace parley {
namespace {

class MachineRuntime final : public Runtime {
 public:
  absl::Time Now() const override { return absl::Now(); }
  std::shared_ptr<Timers> MakeTimers() override { return std::make_shared<TimerThread>(); }
  bool Await(absl::Mutex& mu, const absl::Condition& condition, absl::Time deadline) override {
    return mu.AwaitWithDeadline(condition, deadline);
  }
  uint64_t DrawIncarnation() override { return RandomIncarnation(); }
  int64_t pid() const override { return getpid(); }
};

}  // namespace

std::shared_ptr<Runtime> RealRuntime() { return std::make_shared<MachineRuntime>(); }

}  // namespace parley
