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

namespace {

absl::Status WriteAndSync(FileSystem& files, const std::string& path, std::string_view content) {
  auto file = files.Create(path);
  if (!file.ok()) return file.status();
  auto status = (*file)->Append(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(content.data()), content.size()));
  if (status.ok()) status = (*file)->Sync();
  if (status.ok()) status = (*file)->Close();
  return status;
}

absl::Status SyncFolderOf(FileSystem& files, const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return files.SyncDirectory(folder.empty() ? "." : folder);
}

bool AreTheSame(FileSystem& files, const std::string& path, const std::string& other) {
  const auto one = files.Info(path);
  const auto two = files.Info(other);
  return one.ok() && two.ok() && one->device == two->device && one->inode == two->inode;
}

}  // namespace

absl::Status WriteFileAtomically(FileSystem& files, const std::string& path,
                                 std::string_view content) {
  const std::string temporary = path + ".tmp";
  auto status = WriteAndSync(files, temporary, content);
  if (status.ok()) status = files.Rename(temporary, path);
  if (!status.ok()) {
    files.Remove(temporary).IgnoreError();
    return status;
  }
  return SyncFolderOf(files, path);
}

absl::Status CreateExclusively(FileSystem& files, const std::string& path,
                               const std::string& temporary, std::string_view content) {
  auto status = WriteAndSync(files, temporary, content);
  if (status.ok()) {
    status = files.Link(temporary, path);
    // On NFS the server may have made the link while its reply was lost: the client asks again and
    // is told that the name exists, or gives up. So not the answer counts, but whether the name is
    // now one of our own file (the link count of the temporary file would tell the same).
    if (!status.ok() && AreTheSame(files, temporary, path)) status = absl::OkStatus();
  }
  if (status.ok()) status = SyncFolderOf(files, path);
  // Last of all: while the temporary name is there, nobody has been told that the file is made.
  const absl::Status removed = files.Remove(temporary);
  if (!status.ok() || absl::IsNotFound(removed)) return status;
  return removed;
}

}  // namespace parley
