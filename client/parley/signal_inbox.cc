#include "client/parley/signal_inbox.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>

namespace parley {
namespace {

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&signals, signal);
  return signals;
}

}  // namespace

SignalInbox::SignalInbox() {
  // Inherited as ignored, it would take away the children's exit statuses.
  signal(SIGCHLD, SIG_DFL);
  // A closed pipe of ours is an error of a write, not the end.
  signal(SIGPIPE, SIG_IGN);
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

int SignalInbox::Wait(absl::Duration timeout) {
  const sigset_t signals = Signals();
  const timespec time = absl::ToTimespec(std::max(timeout, absl::ZeroDuration()));
  const int signal = sigtimedwait(&signals, nullptr, &time);
  return signal > 0 && signal != SIGCHLD ? signal : 0;
}

}  // namespace parley
