#ifndef PARLEY_COMMON_JOB_JOB_FILE_H_
#define PARLEY_COMMON_JOB_JOB_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"

namespace parley {

// Reads a job file, applies overrides ("cluster.workers=4", "optimizer.adam.rate=0.01"), fills in
// all defaults, makes relative paths absolute, and checks everything that can be checked without
// starting anything. InvalidArgument or NotFound with "FILE:LINE: field: what is wrong and what
// would be right".
absl::StatusOr<JobConfig> LoadJob(const std::string& path,
                                  const std::vector<std::string>& overrides);

// Equal for two processes exactly if they run the same job. 16 hexadecimal digits.
std::string JobFingerprint(const JobConfig& job);

// Fields that are durations, of a job that LoadJob gave.
absl::Duration Liveness(const JobConfig& job);
absl::Duration StallTimeout(const JobConfig& job);
absl::Duration GatherTimeout(const JobConfig& job);
absl::Duration CheckpointPeriod(const JobConfig& job);  // zero: none by time
absl::Duration Autonomy(const JobConfig& job);
absl::Duration PreemptionGrace(const JobConfig& job);  // zero: it ends at once
// The same after SIGUSR1, by which Slurm says early that the time limit is near: most of
// cluster.slurm.warning_seconds, and no less than PreemptionGrace.
absl::Duration WarningGrace(const JobConfig& job);

// How long a member goes on trying a call. The coordinator sees more than one member does and
// speaks first where a step gets nowhere, also one that comes back at the last moment.
absl::Duration Patience(const JobConfig& job);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_JOB_FILE_H_
