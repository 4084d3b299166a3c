#include "client/open_calls.h"

#include "common/clock/await.h"

namespace parley {

bool OpenCalls::Add(grpc::ClientContext* call) {
  absl::MutexLock lock(&mu_);
  if (closed_) return false;
  calls_.insert(call);
  return true;
}

void OpenCalls::Ended(grpc::ClientContext* call) {
  absl::MutexLock lock(&mu_);
  calls_.erase(call);
  ++ending_;
}

void OpenCalls::Gone() {
  absl::MutexLock lock(&mu_);
  --ending_;
}

void OpenCalls::AwaitNone(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  (void)AwaitFor(mu_, absl::Condition(this, &OpenCalls::NoneLeft), timeout);
}

void OpenCalls::Close(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  closed_ = true;
  // Cancelling only starts the call's end, `done` comes on another thread.
  for (grpc::ClientContext* call : calls_) call->TryCancel();
  (void)AwaitFor(mu_, absl::Condition(this, &OpenCalls::NoneLeft), timeout);
}

}  // namespace parley
