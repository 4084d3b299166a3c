#ifndef PARLEY_TESTS_CONTRACT_TEST_COORDINATOR_H_
#define PARLEY_TESTS_CONTRACT_TEST_COORDINATOR_H_

#include <memory>
#include <string>

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

 private:
  InProcessCoordinator core_;
  std::unique_ptr<Ticker> ticker_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_CONTRACT_TEST_COORDINATOR_H_
