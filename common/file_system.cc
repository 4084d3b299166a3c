#include "common/file_system.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {

absl::StatusOr<std::string> ReadWholeFile(FileSystem& files, const std::string& path,
                                          uint64_t limit) {
  auto file = files.Open(path);
  if (!file.ok()) return file.status();
  const uint64_t size = (*file)->size();
  if (size > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", size, " bytes; at most ", limit, " are read here"));
  }
  std::string content(size, '\0');
  if (auto status = (*file)->Read(
          0, absl::MakeSpan(reinterpret_cast<std::byte*>(content.data()), content.size()));
      !status.ok()) {
    return status;
  }
  return content;
}

absl::Status WriteFileAtomically(FileSystem& files, const std::string& path,
                                 std::string_view content) {
  const std::string temporary = path + ".tmp";
  auto file = files.Create(temporary);
  if (!file.ok()) return file.status();
  auto status = (*file)->Append(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(content.data()), content.size()));
  if (status.ok()) status = (*file)->Sync();
  if (status.ok()) status = (*file)->Close();
  if (status.ok()) status = files.Rename(temporary, path);
  if (!status.ok()) {
    files.Remove(temporary).IgnoreError();
    return status;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return files.SyncDirectory(folder.empty() ? "." : folder);
}

}  // namespace parley
