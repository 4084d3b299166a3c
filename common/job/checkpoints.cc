#include "common/job/checkpoints.h"

namespace parley {

bool CheckpointsWhileTraining(const JobConfig& job) {
  const Checkpoint& checkpoint = job.checkpoint();
  return checkpoint.every_steps() != 0 || !checkpoint.every().empty() || job.max_restarts() != 0;
}

}  // namespace parley
