#ifndef PARLEY_COMMON_CHECKPOINT_FILE_BLOCKS_H_
#define PARLEY_COMMON_CHECKPOINT_FILE_BLOCKS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"

namespace parley {

// Where the blocks of a checkpoint's file lie and which sums were written of them. A file of an
// earlier release, of which the manifest has one sum, is one block. Immutable.
class FileBlocks {
 public:
  // `file` must be one that Check has found right, and outlive this.
  explicit FileBlocks(const CheckpointFile& file);

  // InvalidArgument where size, number of blocks and sums do not fit each other.
  static absl::Status Check(const CheckpointFile& file);

  uint64_t count() const { return sums_.size() / 8; }
  // Bytes that are summed apart from what follows; 0 in a file of an earlier release.
  uint64_t header_bytes() const { return block_bytes_ == 0 ? 0 : first_bytes_; }
  // Of the block that this byte lies in. offset: below the file's size.
  uint64_t Of(uint64_t offset) const;
  uint64_t Begin(uint64_t block) const;
  uint64_t End(uint64_t block) const;
  // 8 hexadecimal digits.
  std::string_view Sum(uint64_t block) const { return sums_.substr(8 * block, 8); }

 private:
  const uint64_t bytes_;
  const uint64_t block_bytes_;  // 0: the file is one block
  const uint64_t first_bytes_;  // of block 0
  const std::string_view sums_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_CHECKPOINT_FILE_BLOCKS_H_
