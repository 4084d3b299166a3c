#ifndef PARLEY_SERVER_PARAMETER_SHARD_DECIDED_PROGRESS_H_
#define PARLEY_SERVER_PARAMETER_SHARD_DECIDED_PROGRESS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "proto/coordinator.pb.h"
#include "proto/types.pb.h"

namespace parley {

// Where the job is after the verdicts of this step leader: the data position, and counts. Shard,
// its owner, tells it each verdict before carrying it out.
class DecidedProgress {
 public:
  // The epoch's first view: its position, at its start_version; nothing is counted yet.
  void Start(const ClusterView& view);

  // InvalidArgument, without effect, where a verdict uses samples that do not exist or are used
  // already.
  absl::Status Add(const Verdict& verdict);

  // Whether a verdict of this share alone could be added: the caller's mistake, not of all.
  absl::Status Check(uint64_t data_epoch, const Share& share) const;

  const JobProgress& progress() const { return progress_; }
  const DataPosition& position() const { return progress_.position(); }

 private:
  uint64_t training_samples_ = 0;
  JobProgress progress_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_DECIDED_PROGRESS_H_
