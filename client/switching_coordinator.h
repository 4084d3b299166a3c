#ifndef PARLEY_CLIENT_SWITCHING_COORDINATOR_H_
#define PARLEY_CLIENT_SWITCHING_COORDINATOR_H_

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/coordinator_client.h"
#include "client/forwarding_coordinator.h"

namespace parley {

// The coordinator wherever it is now: one that has started anew may listen at another address.
// Calls under way stay with the one that they were made to. Thread-safe.
class SwitchingCoordinator final : public ForwardingCoordinator<SwitchingCoordinator> {
 public:
  explicit SwitchingCoordinator(std::shared_ptr<CoordinatorClient> now) : now_(std::move(now)) {}

  void SwitchTo(std::shared_ptr<CoordinatorClient> next) {
    absl::MutexLock lock(&mu_);
    now_.swap(next);  // the old one goes after the lock
  }

  template <class Request, class Reply>
  void Forward(CoordinatorMethod<Request, Reply> method, const Request& request,
               absl::Time deadline, Done<Reply> done) {
    (now().get()->*method)(request, deadline, std::move(done));
  }

 private:
  std::shared_ptr<CoordinatorClient> now() const {
    absl::MutexLock lock(&mu_);
    return now_;
  }

  mutable absl::Mutex mu_;
  std::shared_ptr<CoordinatorClient> now_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_CLIENT_SWITCHING_COORDINATOR_H_
