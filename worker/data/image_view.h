#ifndef PARLEY_WORKER_DATA_IMAGE_VIEW_H_
#define PARLEY_WORKER_DATA_IMAGE_VIEW_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "worker/data/image.h"

namespace parley {

// The part of an image that a sample shows, in pixels.
struct Crop {
  uint32_t left = 0;
  uint32_t top = 0;
  uint32_t width = 0;
  uint32_t height = 0;
};

// A part of random area (`least_area` to all of it) and aspect ratio (3/4 to 4/3, logarithmically),
// at a random place, as torchvision's RandomResizedCrop draws it; the largest middle one where ten
// draws do not fit. The same draws for the same seed.
Crop RandomCrop(uint32_t width, uint32_t height, double least_area, uint64_t seed);

// The square of `side` pixels at a random place of an image of so many, as torchvision's RandomCrop
// draws it. The same draws for the same seed.
Crop RandomSquare(uint32_t width, uint32_t height, uint32_t side, uint64_t seed);

// Whether the view of this seed is mirrored, which `often` (0 to 1) are.
bool IsMirrored(double often, uint64_t seed);

// The square in the middle, of `share` of the shorter side.
Crop MiddleCrop(uint32_t width, uint32_t height, double share);

// What becomes of the pixels: (byte / 255 - mean) / deviation, for each channel.
struct Normalization {
  std::array<float, 3> mean;
  std::array<float, 3> deviation;
};

// Writes the part of the image, scaled to side x side (bilinear, over all pixels that a scaled one
// covers, as Pillow does), mirrored where `mirrored`, normalised; channels first: out has 3 * side
// * side elements. `crop` lies within the image.
void ShowCrop(const Image& image, const Crop& crop, uint32_t side, bool mirrored,
              const Normalization& normalization, absl::Span<float> out);

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_IMAGE_VIEW_H_
