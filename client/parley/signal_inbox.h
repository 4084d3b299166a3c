#ifndef PARLEY_CLIENT_PARLEY_SIGNAL_INBOX_H_
#define PARLEY_CLIENT_PARLEY_SIGNAL_INBOX_H_

#include "absl/time/time.h"

namespace parley {

// SIGINT, SIGTERM, SIGUSR1 and SIGCHLD as events of the main thread's loop rather than handlers.
// Make it in main before any other thread exists: threads inherit that these signals are blocked
// (child processes too, so ChildProcess undoes it for them). Used by one thread.
class SignalInbox {
 public:
  SignalInbox();

  // Waits for a signal, at most so long. SIGINT, SIGTERM or SIGUSR1; 0 when the time is over or a
  // child has changed its state.
  int Wait(absl::Duration timeout);
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_SIGNAL_INBOX_H_
