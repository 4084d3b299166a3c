#include "worker/preemption.h"

#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

std::string NameOf(int signal) {
  switch (signal) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return absl::StrCat("signal ", signal);
  }
}

}  // namespace

void Preemption::BreakOffBy(std::function<void(const std::string&)> leave) {
  std::string signal;
  {
    absl::MutexLock lock(&mu_);
    leave_ = leave;
    if (over_ || signal_.empty()) return;
    signal = signal_;
    ++leaving_;
  }
  Leave(leave, signal);
}

void Preemption::Signal(int signal) {
  std::string name = NameOf(signal);
  std::function<void(const std::string&)> leave;
  {
    absl::MutexLock lock(&mu_);
    if (over_ || !signal_.empty()) return;
    signal_ = name;
    if (!leave_) return;
    leave = leave_;
    ++leaving_;
  }
  Leave(leave, name);
}

void Preemption::Leave(const std::function<void(const std::string&)>& leave,
                       const std::string& signal) {
  leave(signal);
  absl::MutexLock lock(&mu_);
  --leaving_;
}

std::string Preemption::AskedBeforeStep() {
  absl::MutexLock lock(&mu_);
  leave_ = nullptr;
  return signal_;
}

void Preemption::Over() {
  absl::MutexLock lock(&mu_);
  over_ = true;
  mu_.Await(absl::Condition(this, &Preemption::NobodyLeaves));
}

}  // namespace parley
