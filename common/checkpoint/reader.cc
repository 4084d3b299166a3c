#include "common/checkpoint/reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/names.h"
#include "common/tensor.h"

namespace parley {
namespace {

// What was read is summed while it is in the core's own cache.
constexpr size_t kSummedAtOnce = 256 << 10;

absl::Status Damaged(const std::string& path, std::string_view what) {
  return absl::DataLossError(absl::StrCat(
      path, ": the checkpoint is damaged: ", absl::string_view(what.data(), what.size())));
}

// What no file of a whole checkpoint can be: not there, not a file, no safetensors file.
absl::Status AsDamage(const absl::Status& status) {
  const bool lost = absl::IsNotFound(status) || absl::IsInvalidArgument(status);
  return lost ? absl::DataLossError(status.message()) : status;
}

bool SameShape(const TensorSpec& a, const TensorSpec& b) {
  return std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end());
}

}  // namespace

CheckpointReader::CheckpointReader(std::string folder, Manifest manifest)
    : folder_(std::move(folder)), manifest_(std::move(manifest)) {
  for (const TensorSpec& tensor : manifest_.tensors()) {
    tensors_[tensor.name()] = &tensor;
    entries_[tensor.name()].tensor = tensor;
  }
}

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(FileSystem& files,
                                                                         const std::string& path) {
  absl::StatusOr<std::string> folder = ResolveCheckpoint(files, path);
  if (!folder.ok()) return folder.status();
  absl::StatusOr<Manifest> manifest = ReadManifest(files, *folder);
  if (!manifest.ok()) return manifest.status();
  std::unique_ptr<CheckpointReader> reader(
      new CheckpointReader(*std::move(folder), *std::move(manifest)));
  for (const CheckpointFile& file : reader->manifest_.files()) {
    if (absl::Status status = reader->AddFile(files, file); !status.ok()) return status;
  }
  if (absl::Status status = reader->CheckCoverage(); !status.ok()) return status;
  return reader;
}

absl::Status CheckpointReader::AddFile(FileSystem& files, const CheckpointFile& file) {
  const std::string path = absl::StrCat(folder_, "/", file.name());
  absl::StatusOr<std::unique_ptr<ReadableFile>> opened = files.Open(path);
  if (!opened.ok()) return AsDamage(opened.status());
  DataFile& data = *files_.emplace_back(std::make_unique<DataFile>(file));
  if (absl::Status status = data.sum.CheckSizeAndHeader(**opened, path); !status.ok()) {
    return status;
  }
  absl::StatusOr<std::unique_ptr<SafetensorsReader>> reader =
      SafetensorsReader::Open(*std::move(opened), path);
  if (!reader.ok()) return AsDamage(reader.status());
  data.reader = *std::move(reader);
  for (const SafetensorsEntry& entry : data.reader->header().tensors) {
    if (absl::Status status = AddPiece(data, entry); !status.ok()) return status;
  }
  return absl::OkStatus();
}

CheckpointReader::Entry* CheckpointReader::EntryFor(const std::string& name, DataType dtype) {
  if (const auto known = entries_.find(name); known != entries_.end()) return &known->second;
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos || dot + 1 == name.size()) return nullptr;
  const auto tensor = tensors_.find(name.substr(0, dot));
  if (tensor == tensors_.end()) return nullptr;
  states_[tensor->first].insert(name.substr(dot + 1));
  Entry& entry = entries_[name];
  entry.tensor = *tensor->second;
  entry.tensor.set_name(name);
  entry.tensor.set_dtype(dtype);
  return &entry;
}

absl::Status CheckpointReader::AddPiece(const DataFile& file, const SafetensorsEntry& entry) {
  const TensorSpec& lying = entry.tensor;
  // A tensor whose own name looks like a piece's comes first.
  const PieceName name = tensors_.contains(lying.name()) ? PieceName{lying.name(), std::nullopt}
                                                         : ParsePieceName(lying.name());
  Entry* whole = EntryFor(name.name, lying.dtype());
  if (whole == nullptr) {
    return Damaged(file.reader->path(), absl::StrCat("'", lying.name(), "' is part of no tensor"));
  }
  const uint64_t elements = ElementCount(whole->tensor);
  const Piece piece = {name.range.has_value() ? name.range->begin : 0,
                       name.range.has_value() ? name.range->end : elements, &file, &entry};
  const bool fits = name.range.has_value() ? piece.begin <= piece.end && piece.end <= elements &&
                                                 ElementCount(lying) == piece.end - piece.begin
                                           : SameShape(lying, whole->tensor);
  if (!fits || lying.dtype() != whole->tensor.dtype()) {
    return Damaged(file.reader->path(),
                   absl::StrCat("'", lying.name(), "' does not fit the tensor's shape or type"));
  }
  whole->pieces.push_back(piece);
  return absl::OkStatus();
}

absl::Status CheckpointReader::CheckCoverage() {
  for (auto& [name, entry] : entries_) {
    std::sort(entry.pieces.begin(), entry.pieces.end(), [](const Piece& a, const Piece& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    uint64_t end = 0;
    for (const Piece& piece : entry.pieces) {
      if (piece.begin < end) {
        return Damaged(piece.file->reader->path(),
                       absl::StrCat("elements ", piece.begin, " to ", std::min(end, piece.end),
                                    " of '", name, "' are there twice"));
      }
      if (piece.begin > end) break;
      end = piece.end;
    }
    const uint64_t elements = ElementCount(entry.tensor);
    if (end == elements) continue;
    uint64_t next = elements;
    for (const Piece& piece : entry.pieces) {
      if (piece.begin > end) next = std::min(next, piece.begin);
    }
    return Damaged(folder_,
                   absl::StrCat("elements ", end, " to ", next, " of '", name, "' are missing"));
  }
  return absl::OkStatus();
}

const TensorSpec* CheckpointReader::Find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second.tensor;
}

std::vector<std::string> CheckpointReader::StatesOf(const std::string& tensor) const {
  const auto found = states_.find(tensor);
  if (found == states_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

absl::Status CheckpointReader::Read(const std::string& name, uint64_t begin, uint64_t end,
                                    absl::Span<std::byte> bytes) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return absl::NotFoundError(absl::StrCat(folder_, ": has no '", name, "'"));
  }
  const Entry& entry = found->second;
  const uint64_t size = ElementBytes(entry.tensor.dtype());
  if (begin > end || end > ElementCount(entry.tensor) || bytes.size() != (end - begin) * size) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder_, ": '", name, "' has ", ElementCount(entry.tensor), " elements of ", size,
        " bytes; elements ", begin, " to ", end, " into ", bytes.size(), " bytes are asked for"));
  }
  // The first piece that ends behind `begin`.
  auto piece = std::upper_bound(entry.pieces.begin(), entry.pieces.end(), begin,
                                [](uint64_t at, const Piece& piece) { return at < piece.end; });
  for (; begin < end; ++piece) {
    const uint64_t to = std::min(end, piece->end);
    absl::Status status =
        ReadPiece(*piece, (begin - piece->begin) * size, bytes.subspan(0, (to - begin) * size));
    if (!status.ok()) return status;
    bytes.remove_prefix((to - begin) * size);
    begin = to;
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadPiece(const Piece& piece, uint64_t offset,
                                         absl::Span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const absl::Span<std::byte> part = bytes.first(std::min(bytes.size(), kSummedAtOnce));
    if (absl::Status status = piece.file->reader->Read(*piece.entry, offset, part); !status.ok()) {
      return status;
    }
    piece.file->sum.Add(piece.entry->begin + offset, part);
    offset += part.size();
    bytes.remove_prefix(part.size());
  }
  return absl::OkStatus();
}

void CheckpointReader::WillRead(const std::string& name, uint64_t begin, uint64_t end) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return;
  const uint64_t size = ElementBytes(found->second.tensor.dtype());
  for (const Piece& piece : found->second.pieces) {
    const uint64_t from = std::max(begin, piece.begin);
    const uint64_t to = std::min(end, piece.end);
    if (from >= to) continue;
    piece.file->reader->file().WillRead(piece.entry->begin + (from - piece.begin) * size,
                                        (to - from) * size);
  }
}

absl::Status CheckpointReader::VerifyRead(const std::function<bool(uint64_t)>& on_bytes) const {
  for (const auto& file : files_) {
    absl::Status status =
        file->sum.CheckTouched(file->reader->file(), file->reader->path(), on_bytes);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace parley
