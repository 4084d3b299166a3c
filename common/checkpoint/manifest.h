#ifndef PARLEY_COMMON_CHECKPOINT_MANIFEST_H_
#define PARLEY_COMMON_CHECKPOINT_MANIFEST_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "proto/checkpoint.pb.h"

namespace parley {

// Manifest.format as it is written. That of earlier releases, 1, which has no sum of itself, is
// read too.
inline constexpr uint32_t kCheckpointFormat = 2;

// The manifest of a step's folder. NotFound where there is none (the folder is no whole
// checkpoint); else the codes of ParseManifest, with the file's name.
absl::StatusOr<Manifest> ReadManifest(FileSystem& files, const std::string& step_folder);

// Makes a checkpoint out of a folder: checks that the shards' files have the sizes that the
// manifest says (DataLoss if not), then writes manifest.json, durably; its rename is the commit.
// Then makes `latest` in the folder above name it. A crash at any point leaves the old checkpoint
// or the new one. `manifest` must be valid (InvalidArgument); format and sum are set here.
absl::Status CommitCheckpoint(FileSystem& files, const std::string& step_folder, Manifest manifest);

// The step's folder that a user means: the path itself if it has a manifest, else the one that its
// `latest` names. NotFound if it has neither; with the name of `latest`, DataLoss where the one
// that it names has lost its manifest, and the codes of ParseLatest.
absl::StatusOr<std::string> ResolveCheckpoint(FileSystem& files, const std::string& path);

// The folder that `latest` in a directory names, whole or not. NotFound where there is no `latest`;
// else the codes of ParseLatest, with that file's name.
absl::StatusOr<std::string> NamedByLatest(FileSystem& files, const std::string& directory);
// Makes `latest` name that step's folder beside it, durably; removes it. The codes of FileSystem.
absl::Status NameInLatest(FileSystem& files, const std::string& step_folder);
absl::Status RemoveLatest(FileSystem& files, const std::string& directory);

// Pure, so that a fuzzer can drive them:

// Whether a manifest makes sense by itself, but for its sum. InvalidArgument.
absl::Status CheckManifest(const Manifest& manifest);

// The text of manifest.json, in which format and sum are set, and which can be read back as this
// manifest (but for a -0, which becomes 0): InvalidArgument where there is none.
absl::StatusOr<std::string> FormatManifest(Manifest manifest);

// Back. DataLoss where it is not what was written: the sum is wrong, the text is no manifest, or
// CheckManifest says so. InvalidArgument where it is of a later release's format, or has fields, or
// names of values, that are unknown here, and a sum: then it may be of a later release, and whole.
absl::StatusOr<Manifest> ParseManifest(std::string_view json);

}  // namespace parley

#endif  // PARLEY_COMMON_CHECKPOINT_MANIFEST_H_
