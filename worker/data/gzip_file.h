#ifndef PARLEY_WORKER_DATA_GZIP_FILE_H_
#define PARLEY_WORKER_DATA_GZIP_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace parley {

// Reads a file from its start, unpacking it if it is gzip's format. Not thread-safe. Errors name
// the file: NotFound, PermissionDenied, DataLoss (damaged, or it ends before it should).
class GzipFile {
 public:
  static absl::StatusOr<GzipFile> Open(const std::string& path);
  GzipFile(GzipFile&& other) noexcept;
  GzipFile& operator=(GzipFile&&) = delete;
  ~GzipFile();

  // Up to `limit` bytes; fewer only at the end of the file. Memory grows with what is really there.
  absl::StatusOr<std::vector<uint8_t>> Read(uint64_t limit);

 private:
  GzipFile(std::string path, void* file) : path_(std::move(path)), file_(file) {}

  const std::string path_;
  void* file_;  // gzFile
};

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_GZIP_FILE_H_
