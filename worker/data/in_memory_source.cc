#include "worker/data/in_memory_source.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tensor.h"

namespace parley {
namespace {

absl::Status CheckFill(const DataSource& source, absl::Span<const uint64_t> samples,
                       absl::Span<std::byte> x, absl::Span<std::byte> y) {
  if (x.size() != samples.size() * source.x().bytes() ||
      y.size() != samples.size() * source.y().bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        samples.size(), " samples have ", samples.size() * source.x().bytes(), " bytes of x and ",
        samples.size() * source.y().bytes(), " of y, not ", x.size(), " and ", y.size()));
  }
  for (const uint64_t sample : samples) {
    if (sample >= source.size()) {
      return absl::OutOfRangeError(
          absl::StrCat("sample ", sample, " is asked for in a set of ", source.size()));
    }
  }
  return absl::OkStatus();
}

void CopyRows(absl::Span<const uint64_t> samples, size_t row, const std::vector<std::byte>& from,
              absl::Span<std::byte> to) {
  std::byte* out = to.data();
  for (const uint64_t sample : samples) {
    if (row != 0) std::memcpy(out, from.data() + sample * row, row);
    out += row;
  }
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

absl::Status PixelSource::Fill(absl::Span<const uint64_t> samples, absl::Span<std::byte> x,
                               absl::Span<std::byte> y) const {
  if (const absl::Status status = CheckFill(*this, samples, x, y); !status.ok()) return status;
  const size_t image = x_.bytes() / sizeof(float);
  std::byte* x_out = x.data();
  std::byte* y_out = y.data();
  for (const uint64_t sample : samples) {
    const uint8_t* pixels = pixels_.data() + sample * image;
    for (size_t i = 0; i < image; ++i, x_out += sizeof(float)) {
      std::memcpy(x_out, &values_[pixels[i]], sizeof(float));
    }
    const int64_t label = labels_[sample];
    std::memcpy(y_out, &label, sizeof label);
    y_out += sizeof label;
  }
  return absl::OkStatus();
}

RowSource::RowSource(uint64_t size, SampleLayout x, SampleLayout y, std::vector<std::byte> x_bytes,
                     std::vector<std::byte> y_bytes)
    : size_(size),
      x_(std::move(x)),
      y_(std::move(y)),
      x_bytes_(std::move(x_bytes)),
      y_bytes_(std::move(y_bytes)) {}

absl::Status RowSource::Fill(absl::Span<const uint64_t> samples, absl::Span<std::byte> x,
                             absl::Span<std::byte> y) const {
  if (const absl::Status status = CheckFill(*this, samples, x, y); !status.ok()) return status;
  CopyRows(samples, x_.bytes(), x_bytes_, x);
  CopyRows(samples, y_.bytes(), y_bytes_, y);
  return absl::OkStatus();
}

}  // namespace parley
