#include "common/checkpoint/weights_file.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tensor.h"

namespace parley {
namespace {

constexpr uint64_t kElementsAtOnce = 1 << 18;

// One element, wherever it lies.
template <class T>
T At(absl::Span<const std::byte> bytes, uint64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

double Element(absl::Span<const std::byte> bytes, DataType dtype, uint64_t i) {
  switch (dtype) {
    case F16:
      return HalfToFloat(At<uint16_t>(bytes, i));
    case BF16:
      return BFloat16ToFloat(At<uint16_t>(bytes, i));
    default:
      return At<float>(bytes, i);
  }
}

// Every value of the narrower type is one of the wider: nothing is rounded.
void Widen(absl::Span<const std::byte> from, DataType dtype, DataType to,
           absl::Span<std::byte> into) {
  const uint64_t elements = from.size() / ElementBytes(dtype);
  for (uint64_t i = 0; i < elements; ++i) {
    const double value = Element(from, dtype, i);
    if (to == F64) {
      std::memcpy(into.data() + i * sizeof(double), &value, sizeof(double));
    } else {
      const float single = static_cast<float>(value);
      std::memcpy(into.data() + i * sizeof(float), &single, sizeof(float));
    }
  }
}

}  // namespace

absl::StatusOr<bool> WeightsFile::IsMeantBy(FileSystem& files, const std::string& path) {
  const absl::Status opened = files.Open(path).status();
  if (absl::IsInvalidArgument(opened)) return false;  // a folder
  if (!opened.ok()) return opened;
  return true;
}

WeightsFile::WeightsFile(std::unique_ptr<SafetensorsReader> reader) : reader_(std::move(reader)) {
  weights_.path = reader_->path();
  for (const SafetensorsEntry& entry : reader_->header().tensors) {
    weights_.tensors.push_back(entry.tensor);
  }
  for (const auto& [name, kept] : reader_->header().metadata) {
    if (reader_->Find(name) == nullptr && reader_->Find(kept) != nullptr) {
      weights_.tied[name] = kept;
    }
  }
}

absl::StatusOr<std::unique_ptr<WeightsFile>> WeightsFile::Open(FileSystem& files,
                                                               const std::string& path) {
  absl::StatusOr<std::unique_ptr<SafetensorsReader>> reader = SafetensorsReader::Open(files, path);
  if (absl::IsInvalidArgument(reader.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat(reader.status().message(),
                     "; in Python, safetensors.torch.save_file(model.state_dict(), \"FILE\") "
                     "writes a file to start from"));
  }
  if (!reader.ok()) return reader.status();
  return std::unique_ptr<WeightsFile>(new WeightsFile(*std::move(reader)));
}

absl::Status WeightsFile::Read(const TensorSpec& tensor, uint64_t begin, uint64_t end,
                               absl::Span<std::byte> bytes) const {
  // It may be another file by now than the one that was looked at first.
  const auto tied = weights_.tied.find(tensor.name());
  const SafetensorsEntry* const entry =
      reader_->Find(tied == weights_.tied.end() ? tensor.name() : tied->second);
  Weights alone;
  alone.path = reader_->path();
  if (entry != nullptr) {
    alone.tensors.push_back(entry->tensor);
    alone.tensors.back().set_name(tensor.name());
  }
  if (absl::Status status = CheckWeights(alone, {tensor}); !status.ok()) return status;
  const uint64_t size = ElementBytes(tensor.dtype());
  if (begin > end || end > ElementCount(tensor) || bytes.size() != (end - begin) * size) {
    return absl::InvalidArgumentError(absl::StrCat(reader_->path(), ": '", tensor.name(), "' has ",
                                                   ElementCount(tensor), " elements; elements ",
                                                   begin, " to ", end, " into ", bytes.size(),
                                                   " bytes are asked for"));
  }
  const DataType stored = entry->tensor.dtype();
  const uint64_t stored_size = ElementBytes(stored);
  if (stored == tensor.dtype()) return reader_->Read(*entry, begin * size, bytes);
  std::vector<std::byte> narrow(std::min(end - begin, kElementsAtOnce) * stored_size);
  for (uint64_t at = begin; at < end; at += kElementsAtOnce) {
    const uint64_t count = std::min(end - at, kElementsAtOnce);
    const absl::Span<std::byte> part = absl::MakeSpan(narrow).first(count * stored_size);
    if (absl::Status status = reader_->Read(*entry, at * stored_size, part); !status.ok()) {
      return status;
    }
    Widen(part, stored, tensor.dtype(), bytes.subspan((at - begin) * size, count * size));
  }
  return absl::OkStatus();
}

}  // namespace parley
