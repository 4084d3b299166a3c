#include "common/checkpoint/file_blocks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/crc32.h"

namespace parley {
namespace {

// Nobody writes larger ones. A reader may have to read so much for one element.
constexpr uint64_t kMostBlockBytes = 1 << 30;

absl::Status Wrong(const CheckpointFile& file, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("file '", file.name(), "' has ", what));
}

}  // namespace

FileBlocks::FileBlocks(const CheckpointFile& file)
    : bytes_(file.bytes()),
      block_bytes_(file.block_bytes()),
      first_bytes_(block_bytes_ == 0 ? bytes_ : file.header_bytes()),
      sums_(block_bytes_ == 0 ? file.crc32() : file.block_crc32s()) {}

absl::Status FileBlocks::Check(const CheckpointFile& file) {
  if (!IsCrc32Text(file.crc32())) {
    return Wrong(file, absl::StrCat("crc32 '", file.crc32(), "', not 8 hexadecimal digits"));
  }
  const std::string_view sums = file.block_crc32s();
  if (file.header_bytes() == 0 && file.block_bytes() == 0 && sums.empty()) {
    return absl::OkStatus();
  }
  if (file.block_bytes() == 0 || file.block_bytes() > kMostBlockBytes) {
    return Wrong(file, absl::StrCat("blocks of ", file.block_bytes(), " bytes; 1 to ",
                                    kMostBlockBytes, " are possible"));
  }
  if (file.header_bytes() == 0 ||
      file.header_bytes() > std::min<uint64_t>(file.bytes(), kMostBlockBytes)) {
    return Wrong(file, absl::StrCat("a header of ", file.header_bytes(), " bytes in a file of ",
                                    file.bytes()));
  }
  const uint64_t rest = file.bytes() - file.header_bytes();
  const uint64_t blocks = 1 + rest / file.block_bytes() + (rest % file.block_bytes() == 0 ? 0 : 1);
  if (sums.size() % 8 != 0 || sums.size() / 8 != blocks) {
    return Wrong(file, absl::StrCat("block_crc32s of ", sums.size(), " digits; its ", blocks,
                                    " blocks have 8 each"));
  }
  const FileBlocks lie(file);
  uint32_t whole = 0;
  for (uint64_t block = 0; block < blocks; ++block) {
    if (!IsCrc32Text(lie.Sum(block))) {
      return Wrong(file, absl::StrCat("block_crc32s with something else than hexadecimal digits",
                                      " for block ", block));
    }
    whole = CombineCrc32(whole, ParseCrc32(lie.Sum(block)), lie.End(block) - lie.Begin(block));
  }
  // So whoever has checked all blocks has checked the sum of the whole.
  if (Crc32Text(whole) != file.crc32()) {
    return Wrong(file, absl::StrCat("crc32 ", file.crc32(), ", but its block_crc32s give ",
                                    Crc32Text(whole)));
  }
  return absl::OkStatus();
}

uint64_t FileBlocks::Of(uint64_t offset) const {
  return offset < first_bytes_ ? 0 : 1 + (offset - first_bytes_) / block_bytes_;
}

uint64_t FileBlocks::Begin(uint64_t block) const {
  return block == 0 ? 0 : first_bytes_ + (block - 1) * block_bytes_;
}

uint64_t FileBlocks::End(uint64_t block) const {
  return std::min(bytes_, first_bytes_ + block * block_bytes_);
}

}  // namespace parley
