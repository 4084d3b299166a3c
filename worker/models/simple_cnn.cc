#include "worker/models/simple_cnn.h"

#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include <string>

#include "worker/models/image_layout.h"
#include "worker/models/layers.h"

namespace parley {
namespace {

constexpr int64_t kKernel = 5;
constexpr int64_t kChannels1 = 50;
constexpr int64_t kChannels2 = 75;
constexpr int64_t kHidden = 50;

// The side of an image after a convolution without padding and a pooling.
int64_t Shrink(int64_t side) { return (side - kKernel + 1) / 2; }

LayerPlan PlanConv(const std::string& name, int64_t in, int64_t out) {
  return PlanLayer(name, [name, in, out](LayerSet& tensors) -> LayerForward {
    const Conv conv = tensors.AddConv(name, {in, out, kKernel}, Initial::kUniform);
    return [conv](const at::Tensor& x, bool /*training*/) {
      return at::relu(at::max_pool2d(conv(x), 2));
    };
  });
}

}  // namespace

absl::StatusOr<std::vector<LayerPlan>> PlanSimpleCnn(const SimpleCnn& settings,
                                                     const SampleLayout& image) {
  const int64_t classes = settings.has_classes() ? settings.classes() : 10;
  absl::Status fits = CheckImages("simple_cnn", image, /*least_side=*/16, classes);
  if (!fits.ok()) return fits;
  const int64_t features =
      kChannels2 * Shrink(Shrink(image.shape[1])) * Shrink(Shrink(image.shape[2]));
  return std::vector<LayerPlan>{
      PlanConv("conv1", image.shape[0], kChannels1), PlanConv("conv2", kChannels1, kChannels2),
      PlanLayer("fc1",
                [features](LayerSet& tensors) -> LayerForward {
                  const Linear fc1 = tensors.AddLinear("fc1", features, kHidden, Initial::kUniform);
                  return [fc1](const at::Tensor& x, bool /*training*/) {
                    return at::relu(fc1(x.flatten(1)));
                  };
                }),
      PlanLayer("fc2", [classes](LayerSet& tensors) -> LayerForward {
        const Linear fc2 = tensors.AddLinear("fc2", kHidden, classes, Initial::kUniform);
        return [fc2](const at::Tensor& x, bool /*training*/) { return fc2(x); };
      })};
}

}  // namespace parley
