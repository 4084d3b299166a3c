#include "common/checkpoint/file_sum.h"

#include <zlib.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace parley {
namespace {

constexpr uint64_t kChunkBytes = 1 << 20;

uint32_t Extend(uint32_t crc, absl::Span<const std::byte> bytes) {
  return static_cast<uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

void FileSum::Add(uint64_t offset, absl::Span<const std::byte> bytes) {
  if (bytes.empty()) return;
  parts_[offset] = {bytes.size(), Extend(0, bytes)};
}

absl::Status FileSum::Check(const ReadableFile& file, const std::string& path,
                            const CheckpointFile& written) const {
  const uint64_t size = file.size();
  if (size != written.bytes()) {
    return absl::DataLossError(absl::StrCat(path, ": is damaged: it has ", size, " bytes where ",
                                            written.bytes(), " were written"));
  }
  uint32_t crc = 0;
  std::vector<std::byte> chunk;
  for (uint64_t at = 0; at < size;) {
    // Of parts that overlap, those that do not begin where another one ends are left out.
    const auto next = parts_.lower_bound(at);
    if (next != parts_.end() && next->first == at) {
      crc = static_cast<uint32_t>(
          crc32_combine(crc, next->second.crc, static_cast<z_off_t>(next->second.size)));
      at += next->second.size;
      continue;
    }
    const uint64_t end = next == parts_.end() ? size : std::min(size, next->first);
    chunk.resize(std::min(end - at, kChunkBytes));
    if (absl::Status status = file.Read(at, absl::MakeSpan(chunk)); !status.ok()) return status;
    crc = Extend(crc, chunk);
    at += chunk.size();
  }
  const std::string sum = absl::StrFormat("%08x", crc);
  if (sum == written.crc32()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, ": is damaged: the CRC-32 of its bytes 0 to ", size,
                                          " is ", sum, " where ", written.crc32(), " was written"));
}

}  // namespace parley
