#include "common/safetensors/writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crc32.h"
#include "common/safetensors/header.h"
#include "common/tensor.h"

namespace parley {

SafetensorsWriter::SafetensorsWriter(std::string path, std::unique_ptr<WritableFile> file,
                                     uint64_t missing, uint64_t block_bytes)
    : path_(std::move(path)), file_(std::move(file)), missing_(missing) {
  written_.block_bytes = block_bytes;
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    FileSystem& files, const std::string& path, const std::vector<TensorSpec>& tensors,
    const std::map<std::string, std::string>& metadata, uint64_t block_bytes) {
  const absl::StatusOr<std::string> header = FormatSafetensorsHeader(tensors, metadata);
  if (!header.ok()) {
    return absl::Status(header.status().code(),
                        absl::StrCat(path, ": ", header.status().message()));
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> file = files.Create(path);
  if (!file.ok()) return file.status();
  uint64_t missing = 0;
  for (const TensorSpec& tensor : tensors) missing += ByteCount(tensor);
  std::unique_ptr<SafetensorsWriter> writer(
      new SafetensorsWriter(path, *std::move(file), missing, block_bytes));
  if (absl::Status status = writer->WriteHeader(*header); !status.ok()) return status;
  return writer;
}

absl::Status SafetensorsWriter::Append(absl::Span<const std::byte> bytes) {
  if (bytes.size() > missing_) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", bytes.size() - missing_,
                                                   " bytes more than its tensors have are given"));
  }
  missing_ -= bytes.size();
  Sum(bytes);
  return file_->Append(bytes);
}

absl::StatusOr<SafetensorsWriter::Written> SafetensorsWriter::Finish() {
  if (missing_ > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": ", missing_, " bytes of its tensors have not been given"));
  }
  if (absl::Status status = file_->Sync(); !status.ok()) return status;
  if (absl::Status status = file_->Close(); !status.ok()) return status;
  if (in_block_ > 0) EndBlock();
  written_.crc32 = Crc32Text(crc_);
  return written_;
}

absl::Status SafetensorsWriter::WriteHeader(const std::string& header) {
  const absl::Span<const std::byte> bytes =
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(header.data()), header.size());
  block_ = Crc32(0, bytes);
  in_block_ = bytes.size();
  EndBlock();
  written_.header_bytes = bytes.size();
  return file_->Append(bytes);
}

void SafetensorsWriter::Sum(absl::Span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const absl::Span<const std::byte> part =
        bytes.first(std::min<uint64_t>(bytes.size(), written_.block_bytes - in_block_));
    block_ = Crc32(block_, part);
    in_block_ += part.size();
    if (in_block_ == written_.block_bytes) EndBlock();
    bytes.remove_prefix(part.size());
  }
}

void SafetensorsWriter::EndBlock() {
  crc_ = CombineCrc32(crc_, block_, in_block_);
  written_.block_crc32s += Crc32Text(block_);
  written_.bytes += in_block_;
  block_ = 0;
  in_block_ = 0;
}

}  // namespace parley
