#ifndef PARLEY_WORKER_DATA_CIFAR10_H_
#define PARLEY_WORKER_DATA_CIFAR10_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/data/datasets.h"

namespace parley {

// CIFAR-10's binary version (Krizhevsky 2009): records of a class byte and 3 x 32 x 32 bytes, red
// first. x = (byte / 255 - mean) / deviation, of each channel. What of a training image is shown
// follows from (seed, data epoch, sample). settings: with their defaults. NotFound says how to get
// the files; DataLoss names file and byte counts.
absl::StatusOr<Datasets> OpenCifar10(const Cifar10& settings, uint64_t seed);

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_CIFAR10_H_
