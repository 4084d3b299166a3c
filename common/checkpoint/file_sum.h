#ifndef PARLEY_COMMON_CHECKPOINT_FILE_SUM_H_
#define PARLEY_COMMON_CHECKPOINT_FILE_SUM_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/file_system.h"
#include "proto/checkpoint.pb.h"

namespace parley {

// The CRC-32 of a file whose parts are read in any order: each part is summed once, when its reader
// has it in memory, so that a file that was read anyway is checked without reading it again. Used
// by the checkpoint's reader, under its lock, and by VerifyCheckpoint. Not thread-safe.
class FileSum {
 public:
  // A part that was read. Parts may overlap; Check then reads what it cannot put together.
  void Add(uint64_t offset, absl::Span<const std::byte> bytes);

  bool empty() const { return parts_.empty(); }

  // Whether the file, open as `file`, has the size and the sum that were written; reads what no
  // part covers. DataLoss names `path`, the range and both sums; else the codes of ReadableFile.
  absl::Status Check(const ReadableFile& file, const std::string& path,
                     const CheckpointFile& written) const;

 private:
  struct Part {
    uint64_t size = 0;
    uint32_t crc = 0;
  };

  std::map<uint64_t, Part> parts_;  // by offset
};

}  // namespace parley

#endif  // PARLEY_COMMON_CHECKPOINT_FILE_SUM_H_
