#include "common/checkpoint/file_sum.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/crc32.h"

namespace parley {
namespace {

constexpr uint64_t kChunkBytes = 1 << 20;

// Of a file's damaged blocks; all of a file that was overwritten would be a long message.
constexpr size_t kMostBlocksNamed = 8;

std::string RangeText(uint64_t begin, uint64_t end) {
  return absl::StrCat("bytes ", begin, " to ", end);
}

}  // namespace

absl::Status FileSum::CheckSize(const ReadableFile& file, const std::string& path) const {
  const uint64_t size = file.size();
  const uint64_t written = written_.bytes();
  if (size == written) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path, ": is damaged: it has ", size, " bytes where ", written, " were written: ",
                   size < written ? RangeText(size, written) + " are missing"
                                  : RangeText(written, size) + " are not the checkpoint's"));
}

absl::Status FileSum::CheckSizeAndHeader(const ReadableFile& file, const std::string& path) const {
  if (absl::Status status = CheckSize(file, path); !status.ok()) return status;
  if (blocks_.header_bytes() == 0) return absl::OkStatus();
  absl::MutexLock lock(&mu_);
  return CheckBlocks(file, path, {0});
}

void FileSum::Add(uint64_t offset, absl::Span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const uint64_t end = blocks_.End(blocks_.Of(offset));
    const absl::Span<const std::byte> part =
        bytes.first(std::min<uint64_t>(bytes.size(), end - offset));
    const Part summed = {part.size(), Crc32(0, part)};
    {
      absl::MutexLock lock(&mu_);
      parts_[offset] = summed;
    }
    offset += part.size();
    bytes.remove_prefix(part.size());
  }
}

absl::Status FileSum::CheckTouched(const ReadableFile& file, const std::string& path,
                                   const std::function<bool(uint64_t)>& on_bytes) {
  absl::MutexLock lock(&mu_);
  std::vector<uint64_t> touched;
  for (const auto& [offset, part] : parts_) {
    const uint64_t block = blocks_.Of(offset);
    if (touched.empty() || touched.back() != block) touched.push_back(block);
  }
  absl::Status status = CheckBlocks(file, path, touched, on_bytes);
  if (status.ok()) parts_.clear();
  return status;
}

absl::Status FileSum::CheckAll(const ReadableFile& file, const std::string& path) const {
  if (absl::Status status = CheckSize(file, path); !status.ok()) return status;
  std::vector<uint64_t> all(blocks_.count());
  std::iota(all.begin(), all.end(), 0);
  absl::MutexLock lock(&mu_);
  return CheckBlocks(file, path, all);
}

absl::Status FileSum::CheckBlocks(const ReadableFile& file, const std::string& path,
                                  const std::vector<uint64_t>& blocks,
                                  const std::function<bool(uint64_t)>& on_bytes) const {
  std::string damage;
  size_t damaged = 0;
  for (const uint64_t block : blocks) {
    const absl::StatusOr<uint32_t> crc = SumBlock(file, block, on_bytes);
    if (!crc.ok()) return crc.status();
    const std::string sum = Crc32Text(*crc);
    const std::string_view written = blocks_.Sum(block);
    if (sum == written || ++damaged > kMostBlocksNamed) continue;
    absl::StrAppend(&damage, damage.empty() ? "the CRC-32 of its " : ", of its ",
                    RangeText(blocks_.Begin(block), blocks_.End(block)), " is ", sum, " where ",
                    absl::string_view(written.data(), written.size()), " was written");
  }
  if (damaged == 0) return absl::OkStatus();
  if (damaged > kMostBlocksNamed) {
    absl::StrAppend(&damage, ", and ", damaged - kMostBlocksNamed, " more blocks are damaged");
  }
  return absl::DataLossError(absl::StrCat(path, ": is damaged: ", damage));
}

absl::StatusOr<uint32_t> FileSum::SumBlock(const ReadableFile& file, uint64_t block,
                                           const std::function<bool(uint64_t)>& on_bytes) const {
  const uint64_t end = blocks_.End(block);
  uint32_t crc = 0;
  std::vector<std::byte> chunk;
  for (uint64_t at = blocks_.Begin(block); at < end;) {
    // Of parts that overlap, those that do not begin where another one ends are left out.
    const auto next = parts_.lower_bound(at);
    if (next != parts_.end() && next->first == at) {
      crc = CombineCrc32(crc, next->second.crc, next->second.size);
      at += next->second.size;
      continue;
    }
    const uint64_t gap_end = next == parts_.end() ? end : std::min(end, next->first);
    chunk.resize(std::min(gap_end - at, kChunkBytes));
    if (absl::Status status = file.Read(at, absl::MakeSpan(chunk)); !status.ok()) return status;
    if (on_bytes && !on_bytes(chunk.size())) return absl::CancelledError("told to read no more");
    crc = Crc32(crc, chunk);
    at += chunk.size();
  }
  return crc;
}

}  // namespace parley
