#ifndef PARLEY_COMMON_DAEMON_SIGNALS_H_
#define PARLEY_COMMON_DAEMON_SIGNALS_H_

#include <atomic>
#include <functional>
#include <string>
#include <thread>

namespace parley {

// Turns SIGTERM, SIGINT and SIGUSR1 into calls of a function on a thread of its own, where
// everything is allowed that a signal handler may not do. Make it in main before any other thread
// exists: threads inherit the signals' mask.
class TerminationSignals {
 public:
  explicit TerminationSignals(std::function<void(int signal)> on_signal);
  ~TerminationSignals();

 private:
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

// "SIGTERM"; "signal 40" for one that has no name.
std::string SignalName(int signal);

}  // namespace parley

#endif  // PARLEY_COMMON_DAEMON_SIGNALS_H_
