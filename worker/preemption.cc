#include "worker/preemption.h"

#include <csignal>
#include <utility>

#include "common/daemon/signals.h"

namespace parley {

void Preemption::BreakOffBy(Leave leave) {
  std::string signal;
  {
    absl::MutexLock lock(&mu_);
    leave_ = leave;
    if (over_ || signal_.empty()) return;
    signal = signal_;
    ++leaving_;
  }
  Run([&] { leave(signal); });
}

void Preemption::GoOnAfter(std::function<void(int signal)> tell) {
  absl::MutexLock lock(&mu_);
  tell_ = std::move(tell);
}

void Preemption::DuringSteps(Leave heard) {
  absl::MutexLock lock(&mu_);
  heard_ = std::move(heard);
}

void Preemption::Signal(int signal) {
  const std::string name = SignalName(signal);
  std::function<void()> run;
  {
    absl::MutexLock lock(&mu_);
    if (over_ || !signal_.empty()) return;
    if (tell_ && signal != SIGINT) {
      if (told_ == signal || told_ == SIGTERM) return;
      told_ = signal;
      run = [tell = tell_, signal] { tell(signal); };
    } else {
      signal_ = name;
      if (!leave_) return;
      run = [leave = leave_, name] { leave(name); };
    }
    ++leaving_;
  }
  Run(run);
}

void Preemption::Run(const std::function<void()>& call) {
  call();
  absl::MutexLock lock(&mu_);
  --leaving_;
}

std::string Preemption::AskedBeforeStep() {
  absl::MutexLock lock(&mu_);
  leave_ = heard_;
  return signal_;
}

void Preemption::Over() {
  absl::MutexLock lock(&mu_);
  over_ = true;
  mu_.Await(absl::Condition(this, &Preemption::NobodyLeaves));
}

}  // namespace parley
