#include "server/coordinator/job_directory.h"

#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/seed.h"
#include "common/utf8.h"

namespace parley {
namespace {

constexpr uint64_t kSmallFile = 4096;

}  // namespace

JobDirectory::JobDirectory(FileSystem& files, std::string path)
    : files_(files), path_(std::move(path)) {}

absl::Status JobDirectory::CheckName(const std::string& path) {
  const auto invalid = FirstInvalidUtf8(path);
  if (!invalid.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      ValidUtf8(path, kMostReasonBytes), " is not UTF-8 (byte ", *invalid,
      " of the path), and the members of a job are told of folders in it: choose another one, or "
      "rename the folder"));
}

absl::Status JobDirectory::Prepare() {
  if (absl::Status status = files_.CreateDirectories(path_); !status.ok()) return status;
  // So that a crash of the machine does not take the folder away with all that is synced in it. Its
  // parent may be one that this user cannot open; then the system has to see to it.
  files_.SyncDirectory(std::filesystem::path(path_).parent_path().string()).IgnoreError();
  const std::string probe = absl::StrCat(path_, "/.probe-", absl::Hex(RandomIncarnation()));
  if (absl::Status status = WriteFileAtomically(files_, probe, ""); !status.ok()) return status;
  return files_.Remove(probe);
}

absl::Status JobDirectory::WriteAddress(const std::string& address) {
  return WriteFileAtomically(files_, address_file(), address + "\n");
}

absl::Status JobDirectory::WriteTargets(const std::string& content) {
  return WriteFileAtomically(files_, path_ + "/targets.json", content);
}

absl::Status JobDirectory::WriteStopped(bool stopped) {
  if (files_.Exists(stopped_file()) == stopped) return absl::OkStatus();
  return stopped ? WriteFileAtomically(files_, stopped_file(), "parley stop\n")
                 : files_.Remove(stopped_file());
}

absl::StatusOr<std::string> JobDirectory::ReadAddress() const {
  auto content = ReadWholeFile(files_, address_file(), kSmallFile);
  if (absl::IsNotFound(content.status())) return std::string();
  if (!content.ok()) return content.status();
  return std::string(absl::StripAsciiWhitespace(*content));
}

std::string JobDirectory::name() const {
  const std::filesystem::path path = std::filesystem::path(path_).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

std::string JobDirectory::Resolved(const std::string& path) const {
  return (std::filesystem::path(path_) / path).lexically_normal().string();
}

void JobDirectory::RemoveAddress(const std::string& address) {
  auto content = ReadWholeFile(files_, address_file(), kSmallFile);
  if (content.ok() && absl::StripAsciiWhitespace(*content) == address) {
    (void)files_.Remove(address_file());  // a stale one does no harm: nobody answers there
  }
}

}  // namespace parley
