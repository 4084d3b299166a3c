#include "worker/models/simple_cnn.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/torch/torch_status.h"
#include "common/seed.h"

namespace parley {
namespace {

constexpr int64_t kKernel = 5;
constexpr int64_t kChannels1 = 50;
constexpr int64_t kChannels2 = 75;
constexpr int64_t kHidden = 50;

struct Layer {
  at::Tensor weight;
  at::Tensor bias;
};

// PyTorch's default of both layer types: weight and bias uniform in +-1/sqrt(fan in).
Layer MakeLayer(uint64_t seed, const std::string& name, at::IntArrayRef shape) {
  int64_t fan_in = 1;
  for (const int64_t size : shape.slice(1)) fan_in *= size;
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  const auto draw = [&](const std::string& parameter, at::IntArrayRef sizes) {
    const at::Generator generator =
        at::make_generator<at::CPUGeneratorImpl>(DeriveSeed(seed, "initial " + parameter));
    at::Tensor values = at::empty(sizes, at::kFloat);
    values.uniform_(-bound, bound, generator);
    values.set_requires_grad(true);
    return values;
  };
  return {draw(name + ".weight", shape), draw(name + ".bias", {shape[0]})};
}

// The side of an image after a convolution without padding and a pooling.
int64_t Shrink(int64_t side) { return (side - kKernel + 1) / 2; }

class SimpleCnnNetwork final : public Network {
 public:
  SimpleCnnNetwork(uint64_t seed, int64_t channels, int64_t height, int64_t width,
                   int64_t classes) {
    const int64_t features = kChannels2 * Shrink(Shrink(height)) * Shrink(Shrink(width));
    conv1_ = MakeLayer(seed, "conv1", {kChannels1, channels, kKernel, kKernel});
    conv2_ = MakeLayer(seed, "conv2", {kChannels2, kChannels1, kKernel, kKernel});
    fc1_ = MakeLayer(seed, "fc1", {kHidden, features});
    fc2_ = MakeLayer(seed, "fc2", {classes, kHidden});
  }

  at::Tensor Forward(const at::Tensor& x) override {
    at::Tensor h = at::relu(at::max_pool2d(at::conv2d(x, conv1_.weight, conv1_.bias), 2));
    h = at::relu(at::max_pool2d(at::conv2d(h, conv2_.weight, conv2_.bias), 2));
    h = at::relu(at::linear(h.flatten(1), fc1_.weight, fc1_.bias));
    return at::linear(h, fc2_.weight, fc2_.bias);
  }

  void SetTraining(bool /*training*/) override {}

  std::vector<NamedTensor> Tensors() const override {
    return {{"conv1.weight", conv1_.weight}, {"conv1.bias", conv1_.bias},
            {"conv2.weight", conv2_.weight}, {"conv2.bias", conv2_.bias},
            {"fc1.weight", fc1_.weight},     {"fc1.bias", fc1_.bias},
            {"fc2.weight", fc2_.weight},     {"fc2.bias", fc2_.bias}};
  }

 private:
  Layer conv1_, conv2_, fc1_, fc2_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> MakeSimpleCnn(const SimpleCnn& settings, uint64_t seed,
                                                       const SampleLayout& image) {
  if (image.dtype != F32 || image.shape.size() != 3 || image.shape[0] < 1 || image.shape[1] < 16 ||
      image.shape[2] < 16) {
    return absl::InvalidArgumentError(
        absl::StrCat("model simple_cnn takes float32 images of channels x height x width, at least "
                     "16x16; the data has "
                     "samples of ",
                     DataType_Name(image.dtype), " [", absl::StrJoin(image.shape, ", "), "]"));
  }
  const int64_t classes = settings.has_classes() ? settings.classes() : 10;
  if (classes < 1) return absl::InvalidArgumentError("model.simple_cnn.classes must be at least 1");
  std::unique_ptr<Network> network;
  const absl::Status status = CatchTorch("making the simple CNN", [&] {
    network = std::make_unique<SimpleCnnNetwork>(seed, image.shape[0], image.shape[1],
                                                 image.shape[2], classes);
  });
  if (!status.ok()) return status;
  return network;
}

}  // namespace parley
