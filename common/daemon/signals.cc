#include "common/daemon/signals.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {

TerminationSignals::TerminationSignals(std::function<void(int)> on_signal) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  thread_ = std::thread([this, signals, on_signal = std::move(on_signal)] {
    int signal = 0;
    while (sigwait(&signals, &signal) == 0 && !stopping_) on_signal(signal);
  });
}

TerminationSignals::~TerminationSignals() {
  stopping_ = true;
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
}

std::string SignalName(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal) : absl::StrCat("SIG", name);
}

}  // namespace parley
