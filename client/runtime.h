#ifndef PARLEY_CLIENT_RUNTIME_H_
#define PARLEY_CLIENT_RUNTIME_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/timers.h"
#include "common/parallel_for.h"

namespace parley {

// What a process takes from its machine: the clock, timers, a way to wait, and its identity. Code
// that takes all of them from here (the client library and a shard's process do) also runs in the
// simulation (tests/simulation), under virtual time and on one thread. Thread-safe.
class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual absl::Time Now() const = 0;

  // Timers whose tasks run one at a time.
  virtual std::shared_ptr<Timers> MakeTimers() = 0;

  // Waits until `condition`, over what `mu` guards, holds; false: it does not at `deadline`. `mu`
  // is held before and after, and free meanwhile.
  virtual bool Await(absl::Mutex& mu, const absl::Condition& condition, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) = 0;

  // Runs a task that may hang for ever, as in a file of a mount whose server is gone. Nobody waits
  // for it, not at the process's end either. False: no thread is to be had, and it does not run.
  // Where there is one thread alone it runs inside this call.
  virtual bool RunAside(std::function<void()> task) {
    task();
    return true;
  }

  // A new random one each time, also of restarted processes.
  virtual uint64_t DrawIncarnation() = 0;

  virtual int64_t pid() const = 0;

  // The machine's name, for people.
  virtual std::string host() const { return "localhost"; }

  // For loops that are worth more than one thread; must not be used when this has gone. Empty: the
  // caller's thread alone.
  virtual ParallelFor Loops() { return ParallelFor(); }
};

// The machine's.
std::shared_ptr<Runtime> RealRuntime();

}  // namespace parley

#endif  // PARLEY_CLIENT_RUNTIME_H_
