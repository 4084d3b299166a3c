#ifndef PARLEY_COMMON_FILE_SYSTEM_H_
#define PARLEY_COMMON_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace parley {

// A file being written, from its start. Not thread-safe. Destroying it without Close leaves it
// incomplete. An error of writing may be told by a later call than that of Append, at the latest by
// Sync or Close.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual absl::Status Append(absl::Span<const std::byte> bytes) = 0;
  virtual absl::Status Sync() = 0;   // to the disk
  virtual absl::Status Close() = 0;  // does not sync
};

// A file open for reading. Thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual uint64_t size() const = 0;
  // All of `bytes` from `offset`; DataLoss where the file ends before.
  virtual absl::Status Read(uint64_t offset, absl::Span<std::byte> bytes) const = 0;
  // A hint that these bytes are wanted soon: the disk may begin meanwhile. Does not wait.
  virtual void WillRead(uint64_t /*offset*/, uint64_t /*size*/) const {}
};

// What the file system says about a file. Two names are of the same file where device and inode are
// equal.
struct FileInfo {
  uint64_t device = 0;
  uint64_t inode = 0;
  absl::Time modified;  // by the clock of the machine that holds the file
};

// The file operations that the project uses: the seam under which tests inject faults. Errors name
// the path, the operation and the system's reason: NotFound, PermissionDenied, AlreadyExists,
// ResourceExhausted (disk full), else Unavailable. Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Gives the file a second name, exclusively: AlreadyExists if `to` exists. Works without locks,
  // on cluster file systems too.
  virtual absl::Status Link(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& path) = 0;
  virtual absl::Status RemoveDirectory(const std::string& path) = 0;  // an empty one
  virtual absl::Status CreateDirectories(const std::string& path) = 0;
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  virtual absl::StatusOr<std::vector<std::string>> List(
      const std::string& directory) = 0;  // sorted names
  virtual bool Exists(const std::string& path) = 0;
  virtual absl::StatusOr<FileInfo> Info(const std::string& path) = 0;
};

// The real one.
std::unique_ptr<FileSystem> PosixFileSystem();

// The whole file, if it has at most `limit` bytes.
absl::StatusOr<std::string> ReadWholeFile(FileSystem& files, const std::string& path,
                                          uint64_t limit = 64 << 20);

// Readers see the old content or the new one: writes a temporary file beside it, syncs, renames,
// syncs the folder.
absl::Status WriteFileAtomically(FileSystem& files, const std::string& path,
                                 std::string_view content);

// Makes the file, whole and durable, unless somebody has made it before: of all who try, in
// whatever process and on whatever machine, exactly one makes it. `temporary`: a name in the same
// folder that nobody else uses; it is gone afterwards.
//   ALREADY_EXISTS  another one's file is there
//   OK              this one's is, durably
//   any other       the codes of FileSystem: it may be there or not
absl::Status CreateExclusively(FileSystem& files, const std::string& path,
                               const std::string& temporary, std::string_view content);

}  // namespace parley

#endif  // PARLEY_COMMON_FILE_SYSTEM_H_
