#ifndef PARLEY_COMMON_CHECKPOINT_VERIFY_H_
#define PARLEY_COMMON_CHECKPOINT_VERIFY_H_

#include <string>

#include "absl/status/status.h"
#include "common/file_system.h"

namespace parley {

// Reads a whole checkpoint (path: as ResolveCheckpoint takes it) and checks all that can be: sizes
// and sums of the files, and that every element of every tensor is there exactly once. NotFound
// where there is none; DataLoss names every damaged file.
absl::Status VerifyCheckpoint(FileSystem& files, const std::string& path);

}  // namespace parley

#endif  // PARLEY_COMMON_CHECKPOINT_VERIFY_H_
