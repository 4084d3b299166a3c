#ifndef PARLEY_SERVER_PARAMETER_SHARD_CHECKPOINT_MARKS_H_
#define PARLEY_SERVER_PARAMETER_SHARD_CHECKPOINT_MARKS_H_

#include <cstdint>

#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"
#include "proto/types.pb.h"

namespace parley {

// Which versions are to be checkpoints: the step leader marks them in its verdicts, so that all
// shards keep the same one. One at a time: what is due while the last one is still being written is
// marked when that has ended, so that no shard ever keeps more than one version. Owned by Shard,
// under its lock.
class CheckpointMarks {
 public:
  explicit CheckpointMarks(const JobConfig& job);

  // What the coordinator says: how often a checkpoint was asked for, and the newest mark whose
  // checkpoint is whole or given up. A restarted coordinator may say less than was heard before.
  void Follow(uint64_t asked, uint64_t ended);

  // Whether the next version would be marked, whatever its number. In bounded and async the step
  // leader makes a barrier for it.
  bool due() const { return due_ && mark_.version() <= ended_; }

  // Of each decided step (in bounded and async of each barrier), once and in order: whether its
  // version is marked. `position`: at it.
  bool Mark(uint64_t step, const DataPosition& position);

  // The newest; version 0: none yet.
  const CheckpointMark& newest() const { return mark_; }

 private:
  const uint64_t every_steps_;
  bool due_ = false;
  uint64_t asked_ = 0;  // of which the last was marked, or is due
  uint64_t ended_ = 0;
  CheckpointMark mark_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_CHECKPOINT_MARKS_H_
