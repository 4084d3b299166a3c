#ifndef PARLEY_WORKER_DATA_IN_MEMORY_SOURCE_H_
#define PARLEY_WORKER_DATA_IN_MEMORY_SOURCE_H_

#include <array>
#include <vector>

#include "worker/data/data_source.h"

namespace parley {

// Images held as bytes, given out as float32, and their class numbers, given out as int64.
class PixelSource final : public DataSource {
 public:
  // shape: of one image (channels, height, width), as which `pixels` lie one after the other;
  // labels.size() images. x = (byte / 255 - mean) / deviation.
  PixelSource(std::vector<int64_t> shape, std::vector<uint8_t> pixels, std::vector<uint8_t> labels,
              float mean, float deviation);

  uint64_t size() const override { return labels_.size(); }
  const SampleLayout& x() const override { return x_; }
  const SampleLayout& y() const override { return y_; }
  absl::Status FillX(const Draw& draw, absl::Span<std::byte> x) const override;
  absl::Status FillY(const Draw& draw, absl::Span<std::byte> y) const override;

 private:
  const SampleLayout x_;
  const SampleLayout y_;
  const std::vector<uint8_t> pixels_;
  const std::vector<uint8_t> labels_;
  std::array<float, 256> values_;  // what each byte becomes
};

// Samples held as they are given out.
class RowSource final : public DataSource {
 public:
  // x_bytes and y_bytes hold `size` rows of the layouts.
  RowSource(uint64_t size, SampleLayout x, SampleLayout y, std::vector<std::byte> x_bytes,
            std::vector<std::byte> y_bytes);

  uint64_t size() const override { return size_; }
  const SampleLayout& x() const override { return x_; }
  const SampleLayout& y() const override { return y_; }
  absl::Status FillX(const Draw& draw, absl::Span<std::byte> x) const override;
  absl::Status FillY(const Draw& draw, absl::Span<std::byte> y) const override;

 private:
  const uint64_t size_;
  const SampleLayout x_;
  const SampleLayout y_;
  const std::vector<std::byte> x_bytes_;
  const std::vector<std::byte> y_bytes_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_IN_MEMORY_SOURCE_H_
