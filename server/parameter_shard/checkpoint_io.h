#ifndef PARLEY_SERVER_PARAMETER_SHARD_CHECKPOINT_IO_H_
#define PARLEY_SERVER_PARAMETER_SHARD_CHECKPOINT_IO_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "proto/checkpoint.pb.h"
#include "server/parameter_shard/routing.h"
#include "server/parameter_shard/table_slice.h"

namespace parley {

// What a shard reads and writes of checkpoints (docs/checkpoints.md). Blocking; no lock is held
// meanwhile.

// Gives each of the shard's slices its values, optimizer state and step count from the checkpoint
// `folder`, however that one was cut. What was read is checked by the files' sums before the last
// slice is started, so that a shard whose slices are all there has what was written: DataLoss names
// the damaged file and what was found. So it does where there is no manifest any more; NotFound
// where the directory is not there that the folder should be in. The codes of common/checkpoint's
// reader; InvalidArgument
// also where a tensor is missing or has another shape or type; and whatever `start` returns. Where
// `folder` is a file instead, LoadWeights (weights_io.h). on_check: is told of the bytes that are
// read besides, to check the sums, as they are; may be null. stop: is asked before each piece, on
// several threads; true ends it with Cancelled, once the reads that are under way have ended; may
// be null.
absl::Status LoadCheckpoint(
    FileSystem& files, const std::string& folder, const Routing& routing,
    const std::function<absl::Status(uint32_t slice, const SliceStart& start)>& start,
    const std::function<void(uint64_t)>& on_check = nullptr,
    const std::function<bool()>& stop = nullptr);

// Writes folder/shard-ORDINAL.safetensors (ShardFileName) and syncs it and its name. on_bytes: is
// told of each tensor's when they are written, and says whether to go on; may be null. The codes of
// FileSystem; Cancelled where it did not go on. What was written is removed then.
absl::StatusOr<CheckpointFile> WriteCheckpointFile(
    FileSystem& files, const std::string& folder, const Routing& routing,
    const std::vector<SliceSnapshot>& slices,
    const std::function<bool(uint64_t)>& on_bytes = nullptr);

// Manifest.optimizer_steps of the trained tensors whose first slice is among these; of_each_slice:
// of their other slices, too (in bounded and async one slice of a tensor can miss an update that
// another one has).
std::map<std::string, uint64_t> OptimizerSteps(const Routing& routing,
                                               const std::vector<SliceSnapshot>& slices,
                                               bool of_each_slice);

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_CHECKPOINT_IO_H_
