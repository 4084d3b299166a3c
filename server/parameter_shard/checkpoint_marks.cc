#include "server/parameter_shard/checkpoint_marks.h"

#include <algorithm>

namespace parley {

CheckpointMarks::CheckpointMarks(const JobConfig& job)
    : every_steps_(job.checkpoint().every_steps()) {}

void CheckpointMarks::Follow(uint64_t asked, uint64_t ended) {
  if (asked > asked_) due_ = true;
  asked_ = asked;
  ended_ = std::max(ended_, ended);
}

bool CheckpointMarks::Mark(uint64_t step, const DataPosition& position) {
  if (every_steps_ != 0 && step % every_steps_ == 0) due_ = true;
  if (!due()) return false;
  due_ = false;
  mark_.set_version(step);
  *mark_.mutable_position() = position;
  return true;
}

}  // namespace parley
