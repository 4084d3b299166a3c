#ifndef PARLEY_SERVER_PARAMETER_SHARD_WEIGHTS_IO_H_
#define PARLEY_SERVER_PARAMETER_SHARD_WEIGHTS_IO_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/file_system.h"
#include "server/parameter_shard/routing.h"
#include "server/parameter_shard/table_slice.h"

namespace parley {

// Gives each of the shard's slices its values from a file of weights, of which it reads no more
// than these; optimizer state and step counts are as before the first step. Blocking; no lock is
// held meanwhile. stop: as LoadCheckpoint. The codes of WeightsFile; InvalidArgument also where the
// view starts at another version than 0; and whatever `start` returns.
absl::Status LoadWeights(
    FileSystem& files, const std::string& path, const Routing& routing,
    const std::function<absl::Status(uint32_t slice, const SliceStart& start)>& start,
    const std::function<bool()>& stop = nullptr);

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_WEIGHTS_IO_H_
