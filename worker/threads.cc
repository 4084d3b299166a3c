#include "worker/threads.h"

#include <algorithm>

namespace parley {

int ComputeThreads(const JobConfig& job, int cores, size_t processes) {
  if (job.threads() > 0) return static_cast<int>(job.threads());
  return std::max(1, cores / static_cast<int>(std::max<size_t>(1, processes)));
}

size_t ComputeProcesses(const JobConfig& job) {
  const size_t stages = std::max(1U, job.cluster().stages());
  return std::max(1U, job.cluster().workers()) * stages;
}

}  // namespace parley
