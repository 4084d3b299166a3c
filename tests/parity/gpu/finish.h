#ifndef PARLEY_TESTS_PARITY_GPU_FINISH_H_
#define PARLEY_TESTS_PARITY_GPU_FINISH_H_

#include "absl/time/time.h"
#include "common/clock/steady_now.h"
#include "tests/benchmarks/require.h"
#include "worker/device/device.h"

namespace parley {

inline absl::Time Soon() { return SteadyNow() + absl::Minutes(1); }

// Waits until the stream has done what it was given.
inline void Finish(ComputeDevice& device, StreamId stream) {
  const auto event = Require(device.MakeEvent());
  Require(device.Record(*event, stream));
  Require(device.Await(*event, Soon()));
}

}  // namespace parley

#endif  // PARLEY_TESTS_PARITY_GPU_FINISH_H_
