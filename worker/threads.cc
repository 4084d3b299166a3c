#include "worker/threads.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace parley {

int UsableCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int ComputeThreads(const JobConfig& job, int cores, size_t processes) {
  if (job.threads() > 0) return static_cast<int>(job.threads());
  return std::max(1, cores / static_cast<int>(std::max<size_t>(1, processes)));
}

size_t ComputeProcesses(const JobConfig& job) {
  const size_t stages = std::max(1U, job.cluster().stages());
  return std::max(1U, job.cluster().workers()) * stages;
}

}  // namespace parley
