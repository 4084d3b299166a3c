#ifndef PARLEY_WORKER_DATA_IMAGE_H_
#define PARLEY_WORKER_DATA_IMAGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace parley {

// Pixels of 8 bits for each of red, green and blue, row by row, no padding.
struct Image {
  uint32_t width = 0;
  uint32_t height = 0;
  std::vector<uint8_t> pixels;  // height * width * 3
};

// A JPEG or PNG, told apart by its first bytes. Grey images get three equal channels, CMYK ones are
// converted without a colour profile, transparency is dropped, as Pillow's convert("RGB") does.
// What a decoder only warns of is taken, as there, but for a file that is cut off. InvalidArgument
// where it is neither; DataLoss where it is cut off, cannot be decoded or is larger than 2^28
// pixels. Thread-safe.
absl::StatusOr<Image> DecodeImage(absl::string_view bytes);

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_IMAGE_H_
