#ifndef PARLEY_SERVER_COORDINATOR_VIEW_H_
#define PARLEY_SERVER_COORDINATOR_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/weights.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"

namespace parley {

// What a job starts from: a checkpoint, or a file of weights.
struct StartPoint {
  std::string folder;              // absolute, with a whole checkpoint; or the file
  Manifest manifest;               // of weights: empty, which is step 0 and all data to come
  std::optional<Weights> weights;  // where it is a file
  std::set<std::string> damaged;   // folders of later steps in whose place this one is
};

// INVALID_ARGUMENT, in words, if a model and its data cannot go on from a checkpoint: other
// tensors, or a data position beyond the set; or if weights are no start for it, with all names
// (see CheckWeights).
absl::Status CheckStart(const StartPoint& start, const RegisterModelRequest& model,
                        size_t most_listed = kMostListedBytes);

// The step with which the job ends if so many contributors take part in every step from this data
// position and version on.
uint64_t LastStep(const JobConfig& job, const DataPosition& position, uint64_t version,
                  uint64_t training_samples, uint32_t contributors);

// The first view of a job: each contributor with the members that are its parts
// (common/job/contributor_places.h), and which of them sends what of the slices: a worker all, the
// stages of a pipeline what they have, the ranks of a node group what is theirs (slice_ranks.h).
// Shard 0 decides steps.
// `members`: all of them, `start`: null where contributor 0 initialises. The codes of Place.
absl::StatusOr<ClusterView> MakeView(const JobConfig& job, const std::vector<Member>& members,
                                     const RegisterModelRequest& model, const StartPoint* start,
                                     uint64_t job_epoch);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_VIEW_H_
