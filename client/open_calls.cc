#include "client/open_calls.h"

namespace parley {

bool OpenCalls::Add(grpc::ClientContext* call) {
  absl::MutexLock lock(&mu_);
  if (closed_) return false;
  calls_.insert(call);
  return true;
}

void OpenCalls::Remove(grpc::ClientContext* call) {
  absl::MutexLock lock(&mu_);
  calls_.erase(call);
}

void OpenCalls::Close(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  closed_ = true;
  // Cancelling only starts the call's end, `done` comes on another thread.
  for (grpc::ClientContext* call : calls_) call->TryCancel();
  mu_.AwaitWithTimeout(
      absl::Condition(
          +[](std::unordered_set<grpc::ClientContext*>* calls) { return calls->empty(); }, &calls_),
      timeout);
}

}  // namespace parley
