#ifndef PARLEY_TESTS_PARITY_SHARD_WORK_H_
#define PARLEY_TESTS_PARITY_SHARD_WORK_H_

#include "absl/status/statusor.h"
#include "tests/parity/loopback_cluster.h"

namespace parley {

// Seconds that the cluster's first shard has spent so far with adding up and applying gradients, as
// its metrics tell. Unavailable where they cannot be had.
absl::StatusOr<double> SecondsOfShardWork(const LoopbackCluster& cluster);

}  // namespace parley

#endif  // PARLEY_TESTS_PARITY_SHARD_WORK_H_
