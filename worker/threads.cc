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

int ComputeThreads(const JobConfig& job, int cores) {
  if (job.threads() > 0) return static_cast<int>(job.threads());
  const int workers = std::max(1, static_cast<int>(job.cluster().workers()));
  const int each = std::max(1, static_cast<int>(job.cluster().stages()));
  return std::max(1, cores / (workers * each));
}

}  // namespace parley
