#ifndef PARLEY_COMMON_APPENDED_FILE_H_
#define PARLEY_COMMON_APPENDED_FILE_H_

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_descriptor.h"

namespace parley {

// A file that grows at its end by records, each with one write(), so that a process that dies
// leaves whole ones, but for the last on a disk that runs full. Not for what must be durable:
// nothing is synced (FileSystem is for that). Errors name the path. Not thread-safe.
class AppendedFile {
 public:
  // The file, made where there is none.
  static absl::StatusOr<AppendedFile> Open(const std::string& path);
  // A file of that name that was not there. AlreadyExists where it was.
  static absl::StatusOr<AppendedFile> Create(const std::string& path);

  // ResourceExhausted where the disk is full. After an error a part of the record may be there.
  absl::Status Append(std::string_view record);

  // Whether it has bytes and the last one is another than this.
  absl::StatusOr<bool> EndsOtherThan(char last) const;

  const std::string& path() const { return path_; }

 private:
  AppendedFile(FileDescriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  FileDescriptor fd_;
  std::string path_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_APPENDED_FILE_H_
