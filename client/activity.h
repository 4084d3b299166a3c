#ifndef PARLEY_CLIENT_ACTIVITY_H_
#define PARLEY_CLIENT_ACTIVITY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/runtime.h"
#include "client/trace.h"
#include "proto/waits.pb.h"

namespace parley {

// What a worker does now, for `parley why-stuck`: whether its training thread computes or waits
// inside a verb of the session, and which calls have no answer yet. The session writes it, on the
// training thread and where answers come; whoever asks reads it, on any thread. Thread-safe.
class Activity {
 public:
  // trace: takes down each wait and each call that ends; may be null.
  explicit Activity(std::shared_ptr<Runtime> runtime, std::shared_ptr<Trace> trace = nullptr)
      : runtime_(std::move(runtime)), trace_(std::move(trace)) {}

  // The training thread does this from now on, whenever it does not wait. step: 0 for none.
  void Work(std::string what, uint64_t step);
  // The last decided step.
  void Decided(uint64_t step);

  struct WaitingFor {
    std::string what;
    absl::Time since;
    absl::Time deadline;
  };

  // The training thread waits as long as this object lives. They may lie within each other.
  class Waiting {
   public:
    Waiting(Activity& activity, std::string what, absl::Time deadline);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Activity& activity_;
    std::optional<WaitingFor> outer_;
  };

  // A call without an answer: to whom, and its text. ahead: it holds the training thread up only
  // where that waits for nothing else. Returns its number for CallEnded.
  uint64_t CallBegun(Role role, uint32_t ordinal, std::string what, bool ahead = false);
  void CallEnded(uint64_t call);
  // No call is open any more: those that were never end.
  void ForgetCalls();

  // Adds one wait for each process that has not answered, where the training thread waits: that is
  // what holds it up. Otherwise what it works on.
  void Tell(WaitsReply& reply) const;

 private:
  struct Call {
    Role role = ROLE_UNSPECIFIED;
    uint32_t ordinal = 0;
    std::string what;
    absl::Time since;
    bool ahead = false;
  };

  const std::shared_ptr<Runtime> runtime_;
  const std::shared_ptr<Trace> trace_;
  mutable absl::Mutex mu_;
  std::string work_ ABSL_GUARDED_BY(mu_) = "starting";
  absl::Time working_since_ ABSL_GUARDED_BY(mu_) = runtime_->Now();
  uint64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t decided_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<WaitingFor> waiting_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, Call> calls_ ABSL_GUARDED_BY(mu_);
  uint64_t last_call_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_ACTIVITY_H_
