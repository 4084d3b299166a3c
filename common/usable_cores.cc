#include "common/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace parley {

int UsableCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace parley
