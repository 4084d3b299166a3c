#ifndef PARLEY_SERVER_COORDINATOR_CHECKPOINT_FILES_H_
#define PARLEY_SERVER_COORDINATOR_CHECKPOINT_FILES_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "server/coordinator/checkpoint_plan.h"
#include "server/coordinator/view.h"

namespace parley {

// What the coordinator does with the files of checkpoints; the core only says what and when.

// What a job's checkpoint.start_from (absolute) is: the manifest of a checkpoint, as
// ResolveCheckpoint takes it, or the header of a file of weights. The codes of ReadManifest and
// WeightsFile::Open.
absl::StatusOr<StartPoint> LoadStart(FileSystem& files, const std::string& start_from);

// The newest checkpoint of an earlier step in the folder of `damaged` (absolute, as LoadStart takes
// it) whose manifest, files' sizes and headers are right, and the damaged ones after it. NOT_FOUND
// if there is none.
absl::StatusOr<StartPoint> LoadPrevious(FileSystem& files, const std::string& damaged);

// The folder of the newest whole checkpoint in the directory, where `latest` names none or one of
// an earlier step: a crash came, or the disk was full, before it did. nullopt where `latest` is
// right, is somebody's choice by hand, or cannot be read.
std::optional<std::string> WholeAfterLatest(FileSystem& files,
                                            const std::string& checkpoint_directory);

// FAILED_PRECONDITION, with what to do, if the directory holds checkpoints of an earlier run that
// this one does not go on from: any without `start`, those of later steps with it, but for the
// damaged ones in whose place it is.
absl::Status CheckNoEarlierRun(FileSystem& files, const std::string& checkpoint_directory,
                               const std::optional<StartPoint>& start);

// Removes what `keep` does not keep of the checkpoints in a directory, and what is left of ones
// that were given up before the newest whole one. Files of others in their folders stay, and so do
// such folders. The first error; the others are removed all the same.
absl::Status RemoveOldCheckpoints(FileSystem& files, const std::string& directory,
                                  const FileWork::Keep& keep);

// Does the work. ALREADY_EXISTS where a folder to be begun holds a whole checkpoint, NOT_FOUND
// where there is no previous one.
absl::Status Perform(FileSystem& files, FileWork& work);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_CHECKPOINT_FILES_H_
