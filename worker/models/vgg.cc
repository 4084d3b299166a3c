#include "worker/models/vgg.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/torch/torch_status.h"
#include "worker/models/image_layout.h"
#include "worker/models/layers.h"

namespace parley {
namespace {

// Convolutions of 3x3 by their channels, between poolings that halve the sides.
struct Group {
  int convs;
  int64_t channels;
};
constexpr std::array<Group, 5> kGroups = {{{2, 64}, {2, 128}, {4, 256}, {4, 512}, {4, 512}}};

constexpr int64_t kSide = 7;  // to which the features are averaged
constexpr int64_t kHidden = 4096;
constexpr double kDropout = 0.5;

class Vgg19 final : public Network {
 public:
  Vgg19(int64_t channels, int64_t classes, uint64_t seed) : layers_(seed) {
    int number = 0;  // in torchvision's Sequential, which has ReLUs and poolings in it
    int64_t in = channels;
    for (const Group& group : kGroups) {
      std::vector<Conv>& convs = groups_.emplace_back();
      for (int i = 0; i < group.convs; ++i) {
        convs.push_back(layers_.AddConv(absl::StrCat("features.", number),
                                        {in, group.channels, 3, 1, 1}, Initial::kKaimingFanOut));
        in = group.channels;
        number += 2;
      }
      ++number;
    }
    const auto linear = [&](int place, int64_t from, int64_t to) {
      return layers_.AddLinear(absl::StrCat("classifier.", place), from, to, Initial::kSmallNormal);
    };
    hidden1_ = linear(0, in * kSide * kSide, kHidden);
    hidden2_ = linear(3, kHidden, kHidden);
    out_ = linear(6, kHidden, classes);
  }

  at::Tensor Forward(const at::Tensor& x) override {
    at::Tensor h = x;
    for (const std::vector<Conv>& group : groups_) {
      for (const Conv& conv : group) h = conv(h).relu_();
      h = at::max_pool2d(h, 2);
    }
    h = at::adaptive_avg_pool2d(h, {kSide, kSide}).flatten(1);
    h = at::dropout(hidden1_(h).relu_(), kDropout, training_);
    h = at::dropout(hidden2_(h).relu_(), kDropout, training_);
    return out_(h);
  }

  void SetTraining(bool training) override { training_ = training; }

  std::vector<NamedTensor> Tensors() const override { return layers_.tensors(); }

 private:
  LayerSet layers_;
  std::vector<std::vector<Conv>> groups_;
  Linear hidden1_, hidden2_, out_;
  bool training_ = true;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> MakeVgg19(const ImageClasses& settings, uint64_t seed,
                                                   const SampleLayout& image) {
  absl::Status fits = CheckImages("vgg19", image, /*least_side=*/32, settings.classes());
  if (!fits.ok()) return fits;
  std::unique_ptr<Network> network;
  const absl::Status made = CatchTorch("making VGG19", [&] {
    network = std::make_unique<Vgg19>(image.shape[0], settings.classes(), seed);
  });
  if (!made.ok()) return made;
  return network;
}

}  // namespace parley
