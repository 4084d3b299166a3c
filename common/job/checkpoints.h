#ifndef PARLEY_COMMON_JOB_CHECKPOINTS_H_
#define PARLEY_COMMON_JOB_CHECKPOINTS_H_

#include "proto/job.pb.h"

namespace parley {

// Whether the job's shards keep versions for checkpoints again and again while it trains: by steps,
// by time, or to have something to go back to. (One that is asked for, or written when the job is
// told to end, comes without notice.)
bool CheckpointsWhileTraining(const JobConfig& job);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_CHECKPOINTS_H_
