#ifndef PARLEY_COMMON_SAFETENSORS_WRITER_H_
#define PARLEY_COMMON_SAFETENSORS_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/file_system.h"
#include "proto/types.pb.h"

namespace parley {

// Writes a safetensors file as its bytes come, so that no more than the caller's piece is in
// memory. Not thread-safe. A writer that is destroyed without Finish leaves an incomplete file.
class SafetensorsWriter {
 public:
  struct Written {
    uint64_t bytes = 0;
    std::string crc32;  // of the whole file, zlib's, 8 hexadecimal digits
  };

  // Creates the file and writes its header. `tensors` in the order in which their bytes will come;
  // SortForSafetensors (header.h) gives one that is aligned. The codes of FormatSafetensorsHeader
  // and FileSystem::Create.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      FileSystem& files, const std::string& path, const std::vector<TensorSpec>& tensors,
      const std::map<std::string, std::string>& metadata = {});

  // The next bytes of the tensors, one tensor after the other; a piece may be any part of one.
  // InvalidArgument for more than the tensors have.
  absl::Status Append(absl::Span<const std::byte> bytes);

  // Syncs and closes the file. FailedPrecondition if bytes are missing.
  absl::StatusOr<Written> Finish();

 private:
  SafetensorsWriter(std::string path, std::unique_ptr<WritableFile> file, uint64_t missing);

  absl::Status Write(absl::Span<const std::byte> bytes);

  const std::string path_;
  const std::unique_ptr<WritableFile> file_;
  uint64_t missing_;  // bytes of tensors that have not come yet
  uint64_t written_ = 0;
  uint32_t crc_ = 0;
};

}  // namespace parley

#endif  // PARLEY_COMMON_SAFETENSORS_WRITER_H_
