#include "common/safetensors/writer.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/safetensors/header.h"
#include "common/tensor.h"

namespace parley {

SafetensorsWriter::SafetensorsWriter(std::string path, std::unique_ptr<WritableFile> file,
                                     uint64_t missing)
    : path_(std::move(path)), file_(std::move(file)), missing_(missing) {}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    FileSystem& files, const std::string& path, const std::vector<TensorSpec>& tensors,
    const std::map<std::string, std::string>& metadata) {
  const absl::StatusOr<std::string> header = FormatSafetensorsHeader(tensors, metadata);
  if (!header.ok()) {
    return absl::Status(header.status().code(),
                        absl::StrCat(path, ": ", header.status().message()));
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> file = files.Create(path);
  if (!file.ok()) return file.status();
  uint64_t missing = 0;
  for (const TensorSpec& tensor : tensors) missing += ByteCount(tensor);
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter(path, *std::move(file), missing));
  if (absl::Status status = writer->Write(
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(header->data()), header->size()));
      !status.ok()) {
    return status;
  }
  return writer;
}

absl::Status SafetensorsWriter::Append(absl::Span<const std::byte> bytes) {
  if (bytes.size() > missing_) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", bytes.size() - missing_,
                                                   " bytes more than its tensors have are given"));
  }
  missing_ -= bytes.size();
  return Write(bytes);
}

absl::StatusOr<SafetensorsWriter::Written> SafetensorsWriter::Finish() {
  if (missing_ > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": ", missing_, " bytes of its tensors have not been given"));
  }
  if (absl::Status status = file_->Sync(); !status.ok()) return status;
  if (absl::Status status = file_->Close(); !status.ok()) return status;
  return Written{written_, absl::StrFormat("%08x", crc_)};
}

absl::Status SafetensorsWriter::Write(absl::Span<const std::byte> bytes) {
  if (bytes.empty()) return absl::OkStatus();  // zlib starts anew where it gets a null pointer
  crc_ = static_cast<uint32_t>(
      crc32_z(crc_, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  written_ += bytes.size();
  return file_->Append(bytes);
}

}  // namespace parley
