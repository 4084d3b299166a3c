#ifndef PARLEY_WORKER_CUDA_TESTING_SUMS_OF_RANKS_H_
#define PARLEY_WORKER_CUDA_TESTING_SUMS_OF_RANKS_H_

#include "worker/device/device_group.h"
#include "worker/device/plugin.h"

namespace parley {

// What one rank of a group of GPUs does and looks at, for tests: it fails its test where a sum is
// not that of all ranks' values. Each rank calls the same, on a thread or in a process of its own.

// Reduces and gathers again, several rounds.
void ReduceAndGather(const DevicePlugin& plugin, int gpu, const DeviceGroup::Options& options);

// Parts of several sizes for the ranks in turn.
void ReduceParts(const DevicePlugin& plugin, int gpu, const DeviceGroup::Options& options);

// Parts of several sizes of the ranks in turn, to all.
void BroadcastParts(const DevicePlugin& plugin, int gpu, const DeviceGroup::Options& options);

}  // namespace parley

#endif  // PARLEY_WORKER_CUDA_TESTING_SUMS_OF_RANKS_H_
