#ifndef PARLEY_TESTS_SIMULATION_CHECKPOINT_CHECKS_H_
#define PARLEY_TESTS_SIMULATION_CHECKPOINT_CHECKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/file_system.h"
#include "proto/types.pb.h"
#include "tests/simulation/simulated_model.h"

namespace parley {

// That each checkpoint of a simulated job is whole from the moment in which it has a manifest, and
// holds exactly the values and the data position that the verdicts make until its version. One
// thread.
class CheckpointChecks {
 public:
  // All elements of all tensors at a version; nothing while that is not known.
  using Expected = std::function<std::optional<std::vector<float>>(uint64_t version)>;

  CheckpointChecks(SimulatedModel model, Expected expected)
      : model_(std::move(model)), expected_(std::move(expected)) {}

  // A manifest is there.
  void Look(FileSystem& files, const std::string& folder);

  // When the job is over, with the data position after each version: what is to be said of those
  // that could not be judged before, and of their positions.
  void End(const std::map<uint64_t, DataPosition>& positions);

  size_t whole() const { return found_.size(); }
  const std::vector<std::string>& broken() const { return broken_; }

 private:
  struct Found {
    uint64_t step = 0;
    std::string folder;
    std::vector<float> values;
    DataPosition position;
    bool judged = false;
  };

  void Judge(Found& found);

  const SimulatedModel model_;
  const Expected expected_;
  std::vector<Found> found_;
  std::vector<std::string> broken_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_CHECKPOINT_CHECKS_H_
