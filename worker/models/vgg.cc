#include "worker/models/vgg.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

// pools: after the last convolution of a group.
LayerPlan PlanConv(const std::string& name, int64_t in, int64_t out, bool pools) {
  return PlanLayer(name, [=](LayerSet& tensors) -> LayerForward {
    const Conv conv = tensors.AddConv(name, {in, out, 3, 1, 1}, Initial::kKaimingFanOut);
    return [conv, pools](const at::Tensor& x, bool /*training*/) {
      const at::Tensor h = conv(x).relu_();
      return pools ? at::max_pool2d(h, 2) : h;
    };
  });
}

// One of the three linear layers: the first one takes what the convolutions give, the last one
// gives the classes as they are.
enum class Place { kFirst, kMiddle, kLast };

LayerPlan PlanLinear(const std::string& name, int64_t in, int64_t out, Place place) {
  return PlanLayer(name, [=](LayerSet& tensors) -> LayerForward {
    const Linear linear = tensors.AddLinear(name, in, out, Initial::kSmallNormal);
    return [linear, place](const at::Tensor& x, bool training) {
      const at::Tensor h = linear(
          place == Place::kFirst ? at::adaptive_avg_pool2d(x, {kSide, kSide}).flatten(1) : x);
      return place == Place::kLast ? h : at::dropout(h.relu_(), kDropout, training);
    };
  });
}

}  // namespace

absl::StatusOr<std::vector<LayerPlan>> PlanVgg19(const ImageClasses& settings,
                                                 const SampleLayout& image) {
  absl::Status fits = CheckImages("vgg19", image, /*least_side=*/32, settings.classes());
  if (!fits.ok()) return fits;
  std::vector<LayerPlan> plan;
  int number = 0;  // in torchvision's Sequential, which has ReLUs and poolings in it
  int64_t in = image.shape[0];
  for (const Group& group : kGroups) {
    for (int i = 0; i < group.convs; ++i) {
      const bool pools = i + 1 == group.convs;
      plan.push_back(PlanConv(absl::StrCat("features.", number), in, group.channels, pools));
      in = group.channels;
      number += 2;
    }
    ++number;
  }
  plan.push_back(PlanLinear("classifier.0", in * kSide * kSide, kHidden, Place::kFirst));
  plan.push_back(PlanLinear("classifier.3", kHidden, kHidden, Place::kMiddle));
  plan.push_back(PlanLinear("classifier.6", kHidden, settings.classes(), Place::kLast));
  return plan;
}

}  // namespace parley
