#include "common/appended_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

constexpr int kFlags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC;

}  // namespace

absl::StatusOr<AppendedFile> AppendedFile::Open(const std::string& path) {
  FileDescriptor fd(::open(path.c_str(), kFlags, 0644));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
  return AppendedFile(std::move(fd), path);
}

absl::StatusOr<AppendedFile> AppendedFile::Create(const std::string& path) {
  FileDescriptor fd(::open(path.c_str(), kFlags | O_EXCL, 0644));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot create"));
  return AppendedFile(std::move(fd), path);
}

absl::Status AppendedFile::Append(std::string_view record) {
  ssize_t written = -1;
  do {
    written = ::write(fd_.get(), record.data(), record.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot write"));
  if (static_cast<size_t>(written) < record.size()) {
    return absl::ResourceExhaustedError(absl::StrCat(path_, ": only ", written, " of ",
                                                     record.size(),
                                                     " bytes could be written; is the disk full?"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> AppendedFile::EndsOtherThan(char last) const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot stat"));
  }
  if (!S_ISREG(info.st_mode) || info.st_size == 0) return false;
  char found = 0;
  if (::pread(fd_.get(), &found, 1, info.st_size - 1) != 1) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot read"));
  }
  return found != last;
}

}  // namespace parley
