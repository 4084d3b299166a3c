#include "client/coordinator_finder.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace parley {

struct CoordinatorFinder::Shared {
  explicit Shared(std::function<Address()> how) : resolve(std::move(how)) {}

  const std::function<Address()> resolve;
  absl::Mutex mu;
  bool answered ABSL_GUARDED_BY(mu) = true;  // nobody asks
  Address last ABSL_GUARDED_BY(mu);
};

CoordinatorFinder::CoordinatorFinder(std::shared_ptr<Runtime> runtime,
                                     std::function<Address()> resolve)
    : runtime_(std::move(runtime)), shared_(std::make_shared<Shared>(std::move(resolve))) {}

void CoordinatorFinder::Ask(std::function<void(const Address&)> found) {
  const bool is_free = [this] {
    absl::MutexLock lock(&shared_->mu);
    return std::exchange(shared_->answered, false);
  }();
  if (!is_free) return;
  const auto answer = [shared = shared_, found = std::move(found)](Address address) {
    {
      absl::MutexLock lock(&shared->mu);
      shared->last = address;
      shared->answered = true;
    }
    if (found) found(address);
  };
  if (!runtime_->RunAside([shared = shared_, answer] { answer(shared->resolve()); })) {
    answer(absl::UnavailableError("no thread is to be had that asks for its address"));
  }
}

CoordinatorFinder::Address CoordinatorFinder::Await(absl::Time deadline) {
  Ask(nullptr);
  absl::MutexLock lock(&shared_->mu);
  if (!runtime_->Await(shared_->mu, absl::Condition(&shared_->answered), deadline)) {
    return absl::DeadlineExceededError(
        "what says its address does not answer, a file system perhaps");
  }
  return shared_->last;
}

}  // namespace parley
