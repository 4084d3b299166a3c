#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/errno_status.h"
#include "common/file_system.h"
#include "common/posix_writable_file.h"

namespace parley {
namespace {

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(int fd, uint64_t size, std::string path)
      : fd_(fd), size_(size), path_(std::move(path)) {}
  ~PosixReadableFile() override { ::close(fd_); }

  uint64_t size() const override { return size_; }

  absl::Status Read(uint64_t offset, absl::Span<std::byte> bytes) const override {
    while (!bytes.empty()) {
      const ssize_t got = ::pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (got < 0) {
        if (errno == EINTR) continue;
        return ErrnoStatus(errno, "cannot read", path_);
      }
      if (got == 0) {
        return absl::DataLossError(
            absl::StrCat(path_, ": ends at byte ", offset, ", ", bytes.size(), " bytes too early"));
      }
      offset += static_cast<uint64_t>(got);
      bytes.remove_prefix(static_cast<size_t>(got));
    }
    return absl::OkStatus();
  }

  void WillRead(uint64_t offset, uint64_t size) const override {
    ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(size), POSIX_FADV_WILLNEED);
  }

 private:
  const int fd_;
  const uint64_t size_;
  const std::string path_;
};

class PosixFiles final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return ErrnoStatus(errno, "cannot create", path);
    return std::make_unique<PosixWritableFile>(fd, path);
  }

  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ErrnoStatus(errno, "cannot open", path);
    struct stat info {};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      const int error = errno;
      const bool regular = S_ISREG(info.st_mode);
      ::close(fd);
      if (regular) return ErrnoStatus(error, "cannot stat", path);
      return absl::InvalidArgumentError(absl::StrCat(path, ": is not a file"));
    }
    return std::make_unique<PosixReadableFile>(fd, static_cast<uint64_t>(info.st_size), path);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus()
                                                   : ErrnoStatus(errno, "cannot rename to it", to);
  }

  absl::Status Link(const std::string& from, const std::string& to) override {
    return ::link(from.c_str(), to.c_str()) == 0 ? absl::OkStatus()
                                                 : ErrnoStatus(errno, "cannot make it", to);
  }

  absl::Status Remove(const std::string& path) override {
    return ::unlink(path.c_str()) == 0 ? absl::OkStatus()
                                       : ErrnoStatus(errno, "cannot remove", path);
  }

  absl::Status RemoveDirectory(const std::string& path) override {
    return ::rmdir(path.c_str()) == 0 ? absl::OkStatus()
                                      : ErrnoStatus(errno, "cannot remove the folder", path);
  }

  absl::Status CreateDirectories(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    return error ? ErrnoStatus(error.value(), "cannot create the folder", path) : absl::OkStatus();
  }

  absl::Status SyncDirectory(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return ErrnoStatus(errno, "cannot open the folder", path);
    const bool synced = ::fsync(fd) == 0;
    const int error = errno;
    ::close(fd);
    return synced ? absl::OkStatus() : ErrnoStatus(error, "cannot sync the folder", path);
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    std::error_code error;
    std::vector<std::string> names;
    std::filesystem::directory_iterator entry(directory, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    if (error) return ErrnoStatus(error.value(), "cannot list the folder", directory);
    std::sort(names.begin(), names.end());
    return names;
  }

  bool Exists(const std::string& path) override { return ::access(path.c_str(), F_OK) == 0; }

  absl::StatusOr<FileInfo> Info(const std::string& path) override {
    // Opened, not only named: an NFS client asks the server anew when a file is opened, where stat
    // may answer from what it has cached.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ErrnoStatus(errno, "cannot open", path);
    struct stat info {};
    const bool known = ::fstat(fd, &info) == 0;
    const int error = errno;
    ::close(fd);
    if (!known) return ErrnoStatus(error, "cannot stat", path);
    return FileInfo{info.st_dev, info.st_ino, absl::TimeFromTimespec(info.st_mtim)};
  }
};

}  // namespace

std::unique_ptr<FileSystem> PosixFileSystem() { return std::make_unique<PosixFiles>(); }

}  // namespace parley
