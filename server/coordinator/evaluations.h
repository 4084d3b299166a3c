#ifndef PARLEY_SERVER_COORDINATOR_EVALUATIONS_H_
#define PARLEY_SERVER_COORDINATOR_EVALUATIONS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "proto/coordinator.pb.h"

namespace parley {

// Evaluations of versions, each put together from one part of every worker. One is whole, and told,
// only if the sample counts of its parts add up to the test set. Owned by CoordinatorCore, under
// its lock.
class Evaluations {
 public:
  // Of a job with so many workers and test samples.
  void Start(uint32_t workers, uint64_t test_samples);

  // Repeating a part changes nothing. INVALID_ARGUMENT, without effect, if there is no test set,
  // the worker reported something else for this version, or the parts do not add up.
  absl::Status Add(const Member& worker, const Evaluation& part);

  // Whole ones, by version.
  std::vector<Evaluation> Whole() const;

 private:
  struct Parts {
    std::map<uint32_t, Evaluation> by_worker;
    Evaluation sum;
    bool whole = false;
  };

  uint32_t workers_ = 0;
  uint64_t test_samples_ = 0;
  std::map<uint64_t, Parts> versions_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_EVALUATIONS_H_
