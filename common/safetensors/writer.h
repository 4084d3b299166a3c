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

// So large that the sums of a file's blocks are a small text (200 KB for 100 GB), and so small that
// it does not matter when a whole block is read for a part of it.
inline constexpr uint64_t kSumBlockBytes = 4 << 20;

// Writes a safetensors file as its bytes come, so that no more than the caller's piece is in
// memory, and sums them in the same pass. Not thread-safe. A writer that is destroyed without
// Finish leaves an incomplete file.
class SafetensorsWriter {
 public:
  // Sums are zlib's CRC-32s, 8 hexadecimal digits each.
  struct Written {
    uint64_t bytes = 0;
    std::string crc32;          // of the whole file
    uint64_t header_bytes = 0;  // before the tensors: the first block
    uint64_t block_bytes = 0;   // of each other block but the last
    std::string block_crc32s;   // of all blocks, one after the other
  };

  // Creates the file and writes its header. `tensors` in the order in which their bytes will come;
  // SortForSafetensors (header.h) gives one that is aligned. The codes of FormatSafetensorsHeader
  // and FileSystem::Create.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      FileSystem& files, const std::string& path, const std::vector<TensorSpec>& tensors,
      const std::map<std::string, std::string>& metadata = {},
      uint64_t block_bytes = kSumBlockBytes);

  // The next bytes of the tensors, one tensor after the other; a piece may be any part of one.
  // InvalidArgument for more than the tensors have.
  absl::Status Append(absl::Span<const std::byte> bytes);

  // Syncs and closes the file. FailedPrecondition if bytes are missing.
  absl::StatusOr<Written> Finish();

 private:
  SafetensorsWriter(std::string path, std::unique_ptr<WritableFile> file, uint64_t missing,
                    uint64_t block_bytes);

  absl::Status WriteHeader(const std::string& header);
  void Sum(absl::Span<const std::byte> bytes);
  // What has been summed since the last block is one.
  void EndBlock();

  const std::string path_;
  const std::unique_ptr<WritableFile> file_;
  uint64_t missing_;    // bytes of tensors that have not come yet
  Written written_;     // of all whole blocks so far
  uint32_t crc_ = 0;    // of written_.bytes
  uint32_t block_ = 0;  // of what follows them
  uint64_t in_block_ = 0;
};

}  // namespace parley

#endif  // PARLEY_COMMON_SAFETENSORS_WRITER_H_
