#include "worker/models/image_layout.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace parley {

absl::Status CheckImages(const std::string& model, const SampleLayout& samples, int64_t least_side,
                         int64_t classes) {
  if (samples.dtype != F32 || samples.shape.size() != 3 || samples.shape[0] < 1 ||
      samples.shape[1] < least_side || samples.shape[2] < least_side) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", model, " takes float32 images of channels x height x width, at least ",
        least_side, "x", least_side, "; the data has samples of ", DataType_Name(samples.dtype),
        " [", absl::StrJoin(samples.shape, ", "), "]"));
  }
  if (classes < 1) {
    return absl::InvalidArgumentError(absl::StrCat("model.", model, ".classes must be at least 1"));
  }
  return absl::OkStatus();
}

}  // namespace parley
