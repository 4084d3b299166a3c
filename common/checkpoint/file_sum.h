#ifndef PARLEY_COMMON_CHECKPOINT_FILE_SUM_H_
#define PARLEY_COMMON_CHECKPOINT_FILE_SUM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/checkpoint/file_blocks.h"
#include "common/file_system.h"
#include "proto/checkpoint.pb.h"

namespace parley {

// Whether what was read of a file is what was written, by the sums of its blocks. A part is summed
// once, when its reader has it in memory; a check reads only what is missing of the blocks that it
// looks at. Owned by the checkpoint's reader, one for each file, and made by VerifyCheckpoint.
// Thread-safe: parts are summed side by side.
//
// The checks take the file, open, and its path for messages. DataLoss names the path, and of each
// damaged block the range in bytes and both sums; else the codes of ReadableFile.
class FileSum {
 public:
  // `written` must be valid (CheckManifest) and outlive this.
  explicit FileSum(const CheckpointFile& written) : written_(written), blocks_(written) {}

  // The size, and the header where it has a sum of its own.
  absl::Status CheckSizeAndHeader(const ReadableFile& file, const std::string& path) const;

  // A part that was read, of a file of the right size. Parts may overlap: a check then reads again
  // what it cannot put together.
  void Add(uint64_t offset, absl::Span<const std::byte> bytes);

  // The blocks in which parts lie that were added since the last check that found nothing.
  // on_bytes: is told of what it reads for that, as it does, and says whether to go on (Cancelled
  // where not); may be null.
  absl::Status CheckTouched(const ReadableFile& file, const std::string& path,
                            const std::function<bool(uint64_t)>& on_bytes = nullptr);

  // The size and all blocks.
  absl::Status CheckAll(const ReadableFile& file, const std::string& path) const;

 private:
  struct Part {
    uint64_t size = 0;
    uint32_t crc = 0;
  };

  absl::Status CheckSize(const ReadableFile& file, const std::string& path) const;
  absl::Status CheckBlocks(const ReadableFile& file, const std::string& path,
                           const std::vector<uint64_t>& blocks,
                           const std::function<bool(uint64_t)>& on_bytes = nullptr) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<uint32_t> SumBlock(const ReadableFile& file, uint64_t block,
                                    const std::function<bool(uint64_t)>& on_bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CheckpointFile& written_;
  const FileBlocks blocks_;
  mutable absl::Mutex mu_;
  // By offset; each lies in one block.
  std::map<uint64_t, Part> parts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_COMMON_CHECKPOINT_FILE_SUM_H_
