#ifndef PARLEY_CLIENT_OPEN_CALLS_H_
#define PARLEY_CLIENT_OPEN_CALLS_H_

#include <grpcpp/client_context.h>

#include <unordered_set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace parley {

// The calls of a connector that have not ended, so that they can be ended with it: a process that
// exits must not leave calls behind that still run on gRPC's threads. Thread-safe.
class OpenCalls {
 public:
  // False once closed: the call must not be made.
  bool Add(grpc::ClientContext* call);
  // The call has ended and cannot be cancelled any more; it still counts as open.
  void Ended(grpc::ClientContext* call);
  // After Ended, when nothing is left of the call, its context included.
  void Gone();

  // Waits until none is open, at most `timeout`.
  void AwaitNone(absl::Duration timeout);

  // Refuses further calls and cancels the open ones; waits until they are gone, at most `timeout`.
  void Close(absl::Duration timeout);

 private:
  bool NoneLeft() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return calls_.empty() && ending_ == 0;
  }

  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::unordered_set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mu_);
  int ending_ ABSL_GUARDED_BY(mu_) = 0;  // between Ended and Gone
};

}  // namespace parley

#endif  // PARLEY_CLIENT_OPEN_CALLS_H_
