#ifndef PARLEY_CLIENT_REFERENCE_REFERENCE_HOST_H_
#define PARLEY_CLIENT_REFERENCE_REFERENCE_HOST_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/reference/reference_space.h"
#include "common/replies.h"

namespace parley {

// The lock and the clock of a process's ReferenceSpace: every message, every use of a handle and
// time itself pass through here. What the space has decided meanwhile (answers, messages to be
// sent, functions to be begun) happens after the lock. Held as shared: by the agent, which ends it,
// and by references that may outlive that. Thread-safe.
class ReferenceHost : public std::enable_shared_from_this<ReferenceHost> {
 public:
  struct Options {
    ReferenceSpace::Options space;
    // Sends a message once. `done` runs with its answer, or with why there is none, once, on any
    // thread.
    std::function<void(const ToOwner& message, absl::Duration patience, Done<FromOwner> done)> send;
    // Begins a function, which ends with ReferenceSpace::Finish. Must not wait.
    std::function<void(ReferenceSpace::Run run)> begin;
  };

  explicit ReferenceHost(Options options);
  ReferenceHost(const ReferenceHost&) = delete;
  ReferenceHost& operator=(const ReferenceHost&) = delete;

  // Time passes from here on, until End, which must come.
  void Start();
  // Gives up all that is held of others and tells them so, answers whoever waits here, and runs no
  // body any more. When it returns nothing of what was decided before is under way but messages.
  // Once, and not in what With runs.
  void End();

  // Runs `body` under the lock; false: not, since End was called. now: of a clock that nobody sets,
  // which is what leases and deadlines are counted by.
  using Body = absl::FunctionRef<void(ReferenceSpace& space, absl::Time now, Replies& replies)>;
  bool With(Body body);

 private:
  struct Work {
    std::vector<ToOwner> messages;
    std::vector<ReferenceSpace::Run> runs;
  };

  void Deliver(Work work, absl::Time now);
  bool IsQuiet() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return delivering_ == 0; }
  void PassTime();

  const Options options_;
  absl::Mutex mu_;
  ReferenceSpace space_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  int delivering_ ABSL_GUARDED_BY(mu_) = 0;  // calls of With that have left the lock
  std::thread clock_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_REFERENCE_HOST_H_
