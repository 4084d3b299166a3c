#ifndef PARLEY_WORKER_THREADS_H_
#define PARLEY_WORKER_THREADS_H_

#include <cstddef>

#include "proto/job.pb.h"

namespace parley {

// Threads of a worker's or stage's forward and backward: the job's `threads`, or the cores divided
// by those of the job's processes that compute on them, at least 1.
int ComputeThreads(const JobConfig& job, int cores, size_t processes);

// Of the whole job: those that compute on this machine where it runs all of them, else more.
size_t ComputeProcesses(const JobConfig& job);

}  // namespace parley

#endif  // PARLEY_WORKER_THREADS_H_
