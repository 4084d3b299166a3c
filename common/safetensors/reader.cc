#include "common/safetensors/reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

absl::Span<std::byte> BytesOf(std::string& text) {
  return absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size());
}

absl::Status InFile(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

}  // namespace

SafetensorsReader::SafetensorsReader(std::string path, std::unique_ptr<ReadableFile> file,
                                     SafetensorsHeader header)
    : path_(std::move(path)), file_(std::move(file)), header_(std::move(header)) {
  for (const SafetensorsEntry& entry : header_.tensors) by_name_[entry.tensor.name()] = &entry;
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    FileSystem& files, const std::string& path) {
  absl::StatusOr<std::unique_ptr<ReadableFile>> file = files.Open(path);
  if (!file.ok()) return file.status();
  return Open(*std::move(file), path);
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    std::unique_ptr<ReadableFile> file, const std::string& path) {
  const uint64_t size = file->size();
  std::string bytes(std::min<uint64_t>(size, 8), '\0');
  if (absl::Status status = file->Read(0, BytesOf(bytes)); !status.ok()) return status;
  const absl::StatusOr<uint64_t> header_bytes = SafetensorsHeaderBytes(bytes, size);
  if (!header_bytes.ok()) return InFile(path, header_bytes.status());
  bytes.resize(*header_bytes);
  if (absl::Status status = file->Read(0, BytesOf(bytes)); !status.ok()) return status;
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(bytes, size);
  if (!header.ok()) return InFile(path, header.status());
  return std::unique_ptr<SafetensorsReader>(
      new SafetensorsReader(path, std::move(file), *std::move(header)));
}

const SafetensorsEntry* SafetensorsReader::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

absl::Status SafetensorsReader::Read(const SafetensorsEntry& entry, uint64_t offset,
                                     absl::Span<std::byte> bytes) const {
  const uint64_t size = entry.end - entry.begin;
  if (offset > size || bytes.size() > size - offset) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": tensor '", entry.tensor.name(),
                                                   "' has ", size, " bytes; ", bytes.size(),
                                                   " from byte ", offset, " on are asked for"));
  }
  return file_->Read(entry.begin + offset, bytes);
}

}  // namespace parley
