#ifndef PARLEY_WORKER_MODELS_IMAGE_LAYOUT_H_
#define PARLEY_WORKER_MODELS_IMAGE_LAYOUT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "worker/data/data_source.h"

namespace parley {

// InvalidArgument unless samples are float32 images (channels, height, width) with sides of at
// least so many pixels, and there is a class.
absl::Status CheckImages(const std::string& model, const SampleLayout& samples, int64_t least_side,
                         int64_t classes);

}  // namespace parley

#endif  // PARLEY_WORKER_MODELS_IMAGE_LAYOUT_H_
