#ifndef PARLEY_COMMON_CHECKPOINT_MANIFEST_H_
#define PARLEY_COMMON_CHECKPOINT_MANIFEST_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "proto/checkpoint.pb.h"

namespace parley {

// The only format there is so far: Manifest.format.
inline constexpr uint32_t kCheckpointFormat = 1;

// The manifest of a step's folder. NotFound where there is none (the folder is no whole
// checkpoint); InvalidArgument, with the file's name, where it is damaged or of another format.
absl::StatusOr<Manifest> ReadManifest(FileSystem& files, const std::string& step_folder);

// Makes a checkpoint out of a folder: checks that the shards' files have the sizes that the
// manifest says (DataLoss if not), then writes manifest.json, durably; its rename is the commit.
// Then makes `latest` in the folder above name it. A crash at any point leaves the old checkpoint
// or the new one. `manifest` must be valid (InvalidArgument); format is set here.
absl::Status CommitCheckpoint(FileSystem& files, const std::string& step_folder, Manifest manifest);

// The step's folder that a user means: the path itself if it has a manifest, else the one that its
// `latest` names. NotFound if it is neither.
absl::StatusOr<std::string> ResolveCheckpoint(FileSystem& files, const std::string& path);

// Whether a manifest makes sense by itself; the text of manifest.json, and back. Pure, so that a
// fuzzer can drive them. InvalidArgument.
absl::Status CheckManifest(const Manifest& manifest);
absl::StatusOr<std::string> FormatManifest(const Manifest& manifest);
absl::StatusOr<Manifest> ParseManifest(std::string_view json);

}  // namespace parley

#endif  // PARLEY_COMMON_CHECKPOINT_MANIFEST_H_
