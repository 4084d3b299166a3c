#ifndef PARLEY_CLIENT_SWITCHING_COORDINATOR_H_
#define PARLEY_CLIENT_SWITCHING_COORDINATOR_H_

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/coordinator_client.h"

namespace parley {

// The coordinator wherever it is now: one that has started anew may listen at another address.
// Calls under way stay with the one that they were made to. Thread-safe.
class SwitchingCoordinator final : public CoordinatorClient {
 public:
  explicit SwitchingCoordinator(std::shared_ptr<CoordinatorClient> now) : now_(std::move(now)) {}

  void SwitchTo(std::shared_ptr<CoordinatorClient> next) {
    absl::MutexLock lock(&mu_);
    now_.swap(next);  // the old one goes after the lock
  }

#define PARLEY_FORWARD(Method)                                                               \
  void Method(const Method##Request& request, absl::Time deadline, Done<Method##Reply> done) \
      override {                                                                             \
    now()->Method(request, deadline, std::move(done));                                       \
  }
  PARLEY_FORWARD(Join)
  PARLEY_FORWARD(Heartbeat)
  PARLEY_FORWARD(Watch)
  PARLEY_FORWARD(RegisterModel)
  PARLEY_FORWARD(ReportReady)
  PARLEY_FORWARD(ReportVerdicts)
  PARLEY_FORWARD(ReportEvaluation)
  PARLEY_FORWARD(Finish)
  PARLEY_FORWARD(ReportCheckpointFile)
  PARLEY_FORWARD(Fail)
  PARLEY_FORWARD(Leave)
  PARLEY_FORWARD(GetStatus)
#undef PARLEY_FORWARD

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
