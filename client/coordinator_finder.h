#ifndef PARLEY_CLIENT_COORDINATOR_FINDER_H_
#define PARLEY_CLIENT_COORDINATOR_FINDER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/runtime.h"

namespace parley {

// Asks where the coordinator is, for whoever must not wait for the answer: its address lies in a
// file, on a mount whose server may be gone. What asks then hangs, aside (Runtime::RunAside), one
// at a time, and may stay there when this has gone. Thread-safe.
class CoordinatorFinder {
 public:
  using Address = absl::StatusOr<std::string>;  // host:port

  // resolve: may be called, or still run, after this object's life.
  CoordinatorFinder(std::shared_ptr<Runtime> runtime, std::function<Address()> resolve);

  // Asks, and says what comes of it on the thread that did, or inside this call; nothing where the
  // one before has no answer yet.
  void Ask(std::function<void(const Address&)> found);

  // Asks, unless the one before has no answer yet, and waits for it. DeadlineExceeded where there
  // is none.
  Address Await(absl::Time deadline);

 private:
  struct Shared;  // with the thread that asks, which may outlive this object

  const std::shared_ptr<Runtime> runtime_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_COORDINATOR_FINDER_H_
