#include "common/checkpoint/verify.h"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/reader.h"

namespace parley {
namespace {

constexpr uint64_t kChunkBytes = 1 << 20;

absl::Status CheckSum(FileSystem& files, const std::string& path, const CheckpointFile& expected) {
  const absl::StatusOr<std::unique_ptr<ReadableFile>> file = files.Open(path);
  if (!file.ok()) return file.status();
  const uint64_t size = (*file)->size();
  if (size != expected.bytes()) {
    return absl::DataLossError(absl::StrCat(path, ": is damaged: it has ", size, " bytes where ",
                                            expected.bytes(), " were written"));
  }
  uint32_t crc = 0;
  std::vector<std::byte> chunk(std::min(size, kChunkBytes));
  for (uint64_t at = 0; at < size;) {
    const absl::Span<std::byte> part =
        absl::MakeSpan(chunk).first(std::min(size - at, kChunkBytes));
    if (absl::Status status = (*file)->Read(at, part); !status.ok()) return status;
    crc = static_cast<uint32_t>(
        crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size()));
    at += part.size();
  }
  const std::string sum = absl::StrFormat("%08x", crc);
  if (sum == expected.crc32()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, ": is damaged: the CRC-32 of its bytes 0 to ", size,
                                          " is ", sum, " where ", expected.crc32(),
                                          " was written"));
}

}  // namespace

absl::Status VerifyCheckpoint(FileSystem& files, const std::string& path) {
  const absl::StatusOr<std::string> folder = ResolveCheckpoint(files, path);
  if (!folder.ok()) return folder.status();
  const absl::StatusOr<Manifest> manifest = ReadManifest(files, *folder);
  if (!manifest.ok()) return absl::DataLossError(manifest.status().message());
  std::vector<std::string> damaged;
  for (const CheckpointFile& file : manifest->files()) {
    const absl::Status status = CheckSum(files, absl::StrCat(*folder, "/", file.name()), file);
    if (!status.ok()) damaged.push_back(std::string(status.message()));
  }
  if (!damaged.empty()) return absl::DataLossError(absl::StrJoin(damaged, "\n"));
  return CheckpointReader::Open(files, *folder).status();
}

}  // namespace parley
