#ifndef PARLEY_TESTS_CONTRACT_TEST_COORDINATOR_H_
#define PARLEY_TESTS_CONTRACT_TEST_COORDINATOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/job.pb.h"
#include "server/coordinator/in_process.h"
#include "server/coordinator/ticker.h"

namespace parley {

// A coordinator as its main would run it, without files: it ticks, and its file work succeeds at
// once.
class TestCoordinator {
 public:
  explicit TestCoordinator(const JobConfig& job);
  ~TestCoordinator();

  void Open(const std::string& address) { core_.Open(/*generation=*/1, address); }
  // Answers what is parked; after it the clients must be kept away.
  void Close() { core_.Close(); }
  InProcessCoordinator& client() { return core_; }
  // Waits, for a minute at most, until it knows that this step is decided.
  bool AwaitStep(uint64_t step);

 private:
  void Tick();

  InProcessCoordinator core_;
  absl::Mutex mu_;
  uint64_t step_ ABSL_GUARDED_BY(mu_) = 0;  // at the last tick
  std::unique_ptr<Ticker> ticker_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_CONTRACT_TEST_COORDINATOR_H_
