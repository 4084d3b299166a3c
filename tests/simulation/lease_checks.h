#ifndef PARLEY_TESTS_SIMULATION_LEASE_CHECKS_H_
#define PARLEY_TESTS_SIMULATION_LEASE_CHECKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "client/coordinator_client.h"
#include "proto/types.pb.h"
#include "server/coordinator/coordinator.h"

namespace parley {

// That a simulated coordinator loses whoever has been silent for `liveness`, and nobody else. All
// times are the coordinator's. One thread.
class LeaseChecks {
 public:
  explicit LeaseChecks(absl::Duration liveness) : liveness_(liveness) {}

  // `coordinator` as it is to be served; it must not outlive this.
  std::shared_ptr<CoordinatorClient> Listen(std::shared_ptr<CoordinatorClient> coordinator,
                                            std::function<absl::Time()> clock);

  // After the coordinator's core has seen what time it is. What is wrong.
  std::optional<std::string> AfterTick(const CoordinatorCore& core, absl::Time now);

 private:
  class Listener;

  const absl::Duration liveness_;
  std::map<uint64_t, absl::Time> heard_;
  std::set<uint64_t> left_;
  std::set<std::string> joined_;  // addresses, since the last look
  ClusterView view_;              // at the last look
  bool failed_ = false;
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_LEASE_CHECKS_H_
