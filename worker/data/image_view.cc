#include "worker/data/image_view.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "common/seed.h"

namespace parley {
namespace {

constexpr int kDraws = 10;
constexpr double kLeastRatio = 3.0 / 4;
constexpr double kLargestRatio = 4.0 / 3;

// The standard's distributions differ between its implementations.
class Draws {
 public:
  explicit Draws(uint64_t seed) : engine_(seed) {}

  // In [0, 1).
  double Next() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  double Between(double low, double high) { return low + (high - low) * Next(); }
  // 0 .. most.
  uint32_t UpTo(uint32_t most) {
    return std::min(most, static_cast<uint32_t>(Next() * (static_cast<double>(most) + 1)));
  }

 private:
  std::mt19937_64 engine_;
};

// To whole pixels, at least one.
uint32_t Rounded(double pixels) { return static_cast<uint32_t>(std::max(1.0, std::round(pixels))); }

// What one scaled pixel is made of.
struct Tap {
  uint32_t first;
  std::vector<float> weights;  // they add up to 1
};

// Of the triangle filter, as wide as a scaled pixel, over `size` pixels from `begin` on.
std::vector<Tap> Taps(uint32_t begin, uint32_t size, uint32_t side, bool mirrored) {
  const double scale = static_cast<double>(size) / side;
  const double support = std::max(1.0, scale);
  std::vector<Tap> taps(side);
  for (uint32_t i = 0; i < side; ++i) {
    const double centre = (i + 0.5) * scale;
    // As Pillow rounds.
    const auto first = static_cast<uint32_t>(std::max(0.0, centre - support + 0.5));
    const double past = std::floor(centre + support + 0.5);
    const uint32_t end = std::min(size, static_cast<uint32_t>(past));
    Tap tap{begin + first, {}};
    double sum = 0;
    for (uint32_t p = first; p < end; ++p) {
      const double weight = std::max(0.0, 1 - std::abs(p + 0.5 - centre) / support);
      tap.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : tap.weights) weight = static_cast<float>(weight / sum);
    taps[mirrored ? side - 1 - i : i] = std::move(tap);
  }
  return taps;
}

}  // namespace

Crop RandomCrop(uint32_t width, uint32_t height, double least_area, uint64_t seed) {
  Draws draws(seed);
  const double area = static_cast<double>(width) * height;
  for (int draw = 0; draw < kDraws; ++draw) {
    const double target = area * draws.Between(least_area, 1);
    const double ratio = std::exp(draws.Between(std::log(kLeastRatio), std::log(kLargestRatio)));
    const uint32_t w = Rounded(std::sqrt(target * ratio));
    const uint32_t h = Rounded(std::sqrt(target / ratio));
    if (w > width || h > height) continue;
    const uint32_t left = draws.UpTo(width - w);
    return {left, draws.UpTo(height - h), w, h};
  }
  const uint32_t w = std::min(width, Rounded(height * kLargestRatio));
  const uint32_t h = std::min(height, Rounded(width / kLeastRatio));
  return {(width - w) / 2, (height - h) / 2, w, h};
}

Crop RandomSquare(uint32_t width, uint32_t height, uint32_t side, uint64_t seed) {
  Draws draws(seed);
  const uint32_t left = draws.UpTo(width - side);
  return {left, draws.UpTo(height - side), side, side};
}

bool IsMirrored(double often, uint64_t seed) {
  return Draws(DeriveSeed(seed, "mirrored")).Next() < often;
}

Crop MiddleCrop(uint32_t width, uint32_t height, double share) {
  const uint32_t side = Rounded(std::min(width, height) * share);
  return {(width - side) / 2, (height - side) / 2, side, side};
}

void ShowCrop(const Image& image, const Crop& crop, uint32_t side, bool mirrored,
              const Normalization& normalization, absl::Span<float> out) {
  const std::vector<Tap> columns = Taps(crop.left, crop.width, side, mirrored);
  const std::vector<Tap> rows = Taps(crop.top, crop.height, side, false);
  const uint32_t first_row = rows.front().first;
  const uint32_t end_row = rows.back().first + static_cast<uint32_t>(rows.back().weights.size());
  // Rows scaled in their length, of the three channels after each other.
  std::vector<float> scaled(size_t{end_row - first_row} * 3 * side);
  for (uint32_t row = first_row; row < end_row; ++row) {
    const uint8_t* const pixels = image.pixels.data() + size_t{row} * image.width * 3;
    float* const line = scaled.data() + size_t{row - first_row} * 3 * side;
    for (uint32_t i = 0; i < side; ++i) {
      const Tap& tap = columns[i];
      float sums[3] = {};
      for (size_t t = 0; t < tap.weights.size(); ++t) {
        const uint8_t* const pixel = pixels + (tap.first + t) * 3;
        for (int c = 0; c < 3; ++c) sums[c] += tap.weights[t] * static_cast<float>(pixel[c]);
      }
      for (uint32_t c = 0; c < 3; ++c) line[c * side + i] = sums[c];
    }
  }
  for (uint32_t c = 0; c < 3; ++c) {
    const float factor = 1 / (255 * normalization.deviation[c]);
    const float shift = normalization.mean[c] / normalization.deviation[c];
    for (uint32_t i = 0; i < side; ++i) {
      float* const line = out.data() + (size_t{c} * side + i) * side;
      std::fill_n(line, side, 0.0f);
      const Tap& tap = rows[i];
      for (size_t t = 0; t < tap.weights.size(); ++t) {
        const float* const from =
            scaled.data() + (size_t{tap.first - first_row + t} * 3 + c) * side;
        for (uint32_t j = 0; j < side; ++j) line[j] += tap.weights[t] * from[j];
      }
      for (uint32_t j = 0; j < side; ++j) line[j] = line[j] * factor - shift;
    }
  }
}

}  // namespace parley
