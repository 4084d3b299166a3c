#include "worker/data/in_memory_source.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tensor.h"

namespace parley {

absl::Status CheckFill(const Draw& draw, uint64_t size, const SampleLayout& layout,
                       absl::Span<std::byte> out) {
  const size_t count = draw.samples.size();
  if (out.size() != count * layout.bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat(count, " samples have ", count * layout.bytes(), " bytes, not ", out.size()));
  }
  for (const uint64_t sample : draw.samples) {
    if (sample >= size) {
      return absl::OutOfRangeError(
          absl::StrCat("sample ", sample, " is asked for in a set of ", size));
    }
  }
  return absl::OkStatus();
}

absl::Status FillClasses(const Draw& draw, uint64_t size, const SampleLayout& layout,
                         absl::FunctionRef<int64_t(uint64_t sample)> class_of,
                         absl::Span<std::byte> out) {
  if (absl::Status status = CheckFill(draw, size, layout, out); !status.ok()) return status;
  std::byte* to = out.data();
  for (const uint64_t sample : draw.samples) {
    const int64_t number = class_of(sample);
    std::memcpy(to, &number, sizeof number);
    to += sizeof number;
  }
  return absl::OkStatus();
}

namespace {

absl::Status CopyRows(const Draw& draw, uint64_t size, const SampleLayout& layout,
                      const std::vector<std::byte>& from, absl::Span<std::byte> to) {
  if (absl::Status status = CheckFill(draw, size, layout, to); !status.ok()) return status;
  const size_t row = layout.bytes();
  std::byte* out = to.data();
  for (const uint64_t sample : draw.samples) {
    if (row != 0) std::memcpy(out, from.data() + sample * row, row);
    out += row;
  }
  return absl::OkStatus();
}

}  // namespace

size_t SampleLayout::bytes() const {
  size_t count = ElementBytes(dtype);
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  return count;
}

PixelSource::PixelSource(std::vector<int64_t> shape, std::vector<uint8_t> pixels,
                         std::vector<uint8_t> labels, float mean, float deviation)
    : x_{F32, std::move(shape)},
      y_{I64, {}},
      pixels_(std::move(pixels)),
      labels_(std::move(labels)) {
  for (size_t byte = 0; byte < values_.size(); ++byte) {
    values_[byte] = (static_cast<float>(byte) / 255.0F - mean) / deviation;
  }
}

absl::Status PixelSource::FillX(const Draw& draw, absl::Span<std::byte> x) const {
  if (absl::Status status = CheckFill(draw, size(), x_, x); !status.ok()) return status;
  const size_t image = x_.bytes() / sizeof(float);
  std::byte* out = x.data();
  for (const uint64_t sample : draw.samples) {
    const uint8_t* pixels = pixels_.data() + sample * image;
    for (size_t i = 0; i < image; ++i, out += sizeof(float)) {
      std::memcpy(out, &values_[pixels[i]], sizeof(float));
    }
  }
  return absl::OkStatus();
}

absl::Status PixelSource::FillY(const Draw& draw, absl::Span<std::byte> y) const {
  return FillClasses(
      draw, size(), y_, [this](uint64_t sample) { return int64_t{labels_[sample]}; }, y);
}

RowSource::RowSource(uint64_t size, SampleLayout x, SampleLayout y, std::vector<std::byte> x_bytes,
                     std::vector<std::byte> y_bytes)
    : size_(size),
      x_(std::move(x)),
      y_(std::move(y)),
      x_bytes_(std::move(x_bytes)),
      y_bytes_(std::move(y_bytes)) {}

absl::Status RowSource::FillX(const Draw& draw, absl::Span<std::byte> x) const {
  return CopyRows(draw, size_, x_, x_bytes_, x);
}

absl::Status RowSource::FillY(const Draw& draw, absl::Span<std::byte> y) const {
  return CopyRows(draw, size_, y_, y_bytes_, y);
}

}  // namespace parley
