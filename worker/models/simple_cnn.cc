#include "worker/models/simple_cnn.h"

#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include "client/torch/torch_status.h"
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

class SimpleCnnNetwork final : public Network {
 public:
  SimpleCnnNetwork(uint64_t seed, int64_t channels, int64_t height, int64_t width, int64_t classes)
      : layers_(seed) {
    const int64_t features = kChannels2 * Shrink(Shrink(height)) * Shrink(Shrink(width));
    conv1_ = layers_.AddConv("conv1", {channels, kChannels1, kKernel}, Initial::kUniform);
    conv2_ = layers_.AddConv("conv2", {kChannels1, kChannels2, kKernel}, Initial::kUniform);
    fc1_ = layers_.AddLinear("fc1", features, kHidden, Initial::kUniform);
    fc2_ = layers_.AddLinear("fc2", kHidden, classes, Initial::kUniform);
  }

  at::Tensor Forward(const at::Tensor& x) override {
    at::Tensor h = at::relu(at::max_pool2d(conv1_(x), 2));
    h = at::relu(at::max_pool2d(conv2_(h), 2));
    h = at::relu(fc1_(h.flatten(1)));
    return fc2_(h);
  }

  void SetTraining(bool /*training*/) override {}

  std::vector<NamedTensor> Tensors() const override { return layers_.tensors(); }

 private:
  LayerSet layers_;
  Conv conv1_, conv2_;
  Linear fc1_, fc2_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> MakeSimpleCnn(const SimpleCnn& settings, uint64_t seed,
                                                       const SampleLayout& image) {
  const int64_t classes = settings.has_classes() ? settings.classes() : 10;
  absl::Status fits = CheckImages("simple_cnn", image, /*least_side=*/16, classes);
  if (!fits.ok()) return fits;
  std::unique_ptr<Network> network;
  const absl::Status status = CatchTorch("making the simple CNN", [&] {
    network = std::make_unique<SimpleCnnNetwork>(seed, image.shape[0], image.shape[1],
                                                 image.shape[2], classes);
  });
  if (!status.ok()) return status;
  return network;
}

}  // namespace parley
