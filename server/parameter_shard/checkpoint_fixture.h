#ifndef PARLEY_SERVER_PARAMETER_SHARD_CHECKPOINT_FIXTURE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_CHECKPOINT_FIXTURE_H_

// For tests of checkpoints: shards that have something to write, and what others load of it.

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "server/parameter_shard/shard_fixture.h"
#include "server/parameter_shard/table_slice.h"

namespace parley::testing {

// SGD with momentum, which has state.
JobConfig MomentumJob();

// Two slices of one tensor, a small tensor and a buffer.
ViewOptions CutModel(uint32_t shards, uint64_t placement);

// Steps [from, to], with other gradients for each element and step.
void Train(ShardCluster& cluster, uint64_t from, uint64_t to);

// Values, state and step count of slices by id, in one text each.
using LoadedSlices = std::map<uint32_t, std::string>;

// What the shard of this ordinal in `view` starts with, by LoadCheckpoint.
absl::StatusOr<LoadedSlices> LoadShard(FileSystem& files, const std::string& folder,
                                       const ClusterView& view, uint32_t shard);
// What these snapshots must load as.
LoadedSlices AsLoaded(const std::vector<SliceSnapshot>& slices);

}  // namespace parley::testing

#endif  // PARLEY_SERVER_PARAMETER_SHARD_CHECKPOINT_FIXTURE_H_
