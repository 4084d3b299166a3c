#ifndef PARLEY_WORKER_THREADS_H_
#define PARLEY_WORKER_THREADS_H_

#include "proto/job.pb.h"

namespace parley {

// Cores that this process may run on.
int UsableCores();

// Threads of a worker's or stage's forward and backward: the job's `threads`, or the cores divided
// by the job's processes that compute (this release runs them all on one machine), at least 1.
int ComputeThreads(const JobConfig& job, int cores);

}  // namespace parley

#endif  // PARLEY_WORKER_THREADS_H_
