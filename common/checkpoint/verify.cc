#include "common/checkpoint/verify.h"

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/file_sum.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/reader.h"

namespace parley {
namespace {

absl::Status CheckSum(FileSystem& files, const std::string& path, const CheckpointFile& written) {
  const absl::StatusOr<std::unique_ptr<ReadableFile>> file = files.Open(path);
  if (!file.ok()) return file.status();
  return FileSum(written).CheckAll(**file, path);
}

}  // namespace

absl::Status VerifyCheckpoint(FileSystem& files, const std::string& path) {
  const absl::StatusOr<std::string> folder = ResolveCheckpoint(files, path);
  if (!folder.ok()) return folder.status();
  const absl::StatusOr<Manifest> manifest = ReadManifest(files, *folder);
  if (!manifest.ok()) return absl::DataLossError(manifest.status().message());
  std::vector<std::string> damaged;
  for (const CheckpointFile& file : manifest->files()) {
    const absl::Status status = CheckSum(files, absl::StrCat(*folder, "/", file.name()), file);
    if (!status.ok()) damaged.push_back(std::string(status.message()));
  }
  if (!damaged.empty()) return absl::DataLossError(absl::StrJoin(damaged, "\n"));
  return CheckpointReader::Open(files, *folder).status();
}

}  // namespace parley
