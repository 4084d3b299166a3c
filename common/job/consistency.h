#ifndef PARLEY_COMMON_JOB_CONSISTENCY_H_
#define PARLEY_COMMON_JOB_CONSISTENCY_H_

#include <cstdint>
#include <optional>

#include "proto/job.pb.h"

namespace parley {

// What of a job's consistency mode several roles need to know.

// bounded or async: each worker has a clock of its own, and each push is applied as it comes.
bool IsClocked(const JobConfig& job);

// How many clocks a worker may be ahead of the slowest one; nullopt where nobody waits.
std::optional<uint64_t> ClockBound(const JobConfig& job);

// Whether contributions are taken as they are, without weight or division.
bool SumsContributions(const JobConfig& job);

// `steps` of the job as the serial number of its last verdict: in bounded and async there is one
// for each contribution, so that many for each of cluster.workers.
uint64_t StepsAskedFor(const JobConfig& job);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_CONSISTENCY_H_
