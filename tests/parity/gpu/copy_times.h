#ifndef PARLEY_TESTS_PARITY_GPU_COPY_TIMES_H_
#define PARLEY_TESTS_PARITY_GPU_COPY_TIMES_H_

#include <cstddef>

#include "worker/device/device.h"

namespace parley {

// Seconds to bring so many bytes to the host, and back.
struct CopyTimes {
  double to_host = 0;
  double to_device = 0;
};

// One pinned copy of all, the best of several.
CopyTimes LargeCopies(ComputeDevice& device, size_t bytes);

// In buckets, by a worker's own ways; the host does nothing with what comes. Medians.
CopyTimes WorkersCopies(ComputeDevice& device, size_t bytes);

}  // namespace parley

#endif  // PARLEY_TESTS_PARITY_GPU_COPY_TIMES_H_
