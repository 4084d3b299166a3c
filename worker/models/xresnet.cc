#include "worker/models/xresnet.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/models/image_layout.h"
#include "worker/models/layers.h"

namespace parley {
namespace {

constexpr Initial kInitial = Initial::kKaimingFanIn;
constexpr std::array<int64_t, 3> kStem = {32, 32, 64};
constexpr std::array<int, 4> kBlocks = {3, 4, 6, 3};
constexpr int64_t kExpansion = 4;

struct Block {
  std::array<NormedConv, 3> path;
  bool pools = false;  // before the identity's convolution
  std::optional<NormedConv> identity;

  at::Tensor operator()(const at::Tensor& x, bool training) const {
    at::Tensor h = path[0](x, training).relu_();
    h = path[1](h, training).relu_();
    h = path[2](h, training);
    at::Tensor around = pools ? at::avg_pool2d(x, 2, /*stride=*/{}, /*padding=*/0,
                                               /*ceil_mode=*/true)
                              : x;
    if (identity.has_value()) around = (*identity)(around, training);
    h += around;
    return h.relu_();
  }
};

// What fastai calls a ConvLayer: NAME.0 and NAME.1.
NormedConv Add(LayerSet& tensors, const std::string& name, int64_t in, int64_t out, int64_t kernel,
               int64_t stride, double norm_weight = 1) {
  NormedConv layer;
  layer.conv =
      tensors.AddConv(name + ".0", {in, out, kernel, stride, (kernel - 1) / 2, false}, kInitial);
  layer.norm = tensors.AddBatchNorm(name + ".1", out, norm_weight);
  return layer;
}

// pools: after the stem's last convolution.
LayerPlan PlanStem(const std::string& name, int64_t in, int64_t out, int64_t stride, bool pools) {
  return PlanLayer(name, [=](LayerSet& tensors) -> LayerForward {
    const NormedConv conv = Add(tensors, name, in, out, 3, stride);
    return [conv, pools](const at::Tensor& x, bool training) {
      const at::Tensor h = conv(x, training).relu_();
      return pools ? at::max_pool2d(h, 3, 2, 1) : h;
    };
  });
}

LayerPlan PlanBlock(const std::string& name, int64_t in, int64_t width, int64_t stride) {
  return PlanLayer(name, [=](LayerSet& tensors) -> LayerForward {
    const int64_t out = kExpansion * width;
    Block block;
    block.path = {Add(tensors, name + ".convpath.0", in, width, 1, 1),
                  Add(tensors, name + ".convpath.1", width, width, 3, stride),
                  Add(tensors, name + ".convpath.2", width, out, 1, 1, /*norm_weight=*/0)};
    block.pools = stride != 1;
    if (in != out) {
      block.identity =
          Add(tensors, absl::StrCat(name, ".idpath.", block.pools ? 1 : 0), in, out, 1, 1);
    }
    return block;
  });
}

LayerPlan PlanEnd(const std::string& name, int64_t in, int64_t classes) {
  return PlanLayer(name, [=](LayerSet& tensors) -> LayerForward {
    const Linear fc = tensors.AddLinear(name, in, classes, kInitial);
    return [fc](const at::Tensor& x, bool /*training*/) {
      return fc(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
    };
  });
}

}  // namespace

absl::StatusOr<std::vector<LayerPlan>> PlanXResNet50(const ImageClasses& settings,
                                                     const SampleLayout& image) {
  absl::Status fits = CheckImages("xresnet50", image, /*least_side=*/1, settings.classes());
  if (!fits.ok()) return fits;
  std::vector<LayerPlan> plan;
  int64_t in = image.shape[0];
  for (size_t i = 0; i < kStem.size(); ++i) {
    plan.push_back(PlanStem(absl::StrCat(i), in, kStem[i], i == 0 ? 2 : 1, i + 1 == kStem.size()));
    in = kStem[i];
  }
  const size_t first = kStem.size() + 1;  // after the pooling
  for (size_t layer = 0; layer < kBlocks.size(); ++layer) {
    const int64_t width = int64_t{64} << layer;
    for (int block = 0; block < kBlocks[layer]; ++block) {
      const int64_t stride = layer > 0 && block == 0 ? 2 : 1;
      plan.push_back(PlanBlock(absl::StrCat(first + layer, ".", block), in, width, stride));
      in = kExpansion * width;
    }
  }
  // Between them: averaging, flattening, a dropout of nothing.
  plan.push_back(PlanEnd(absl::StrCat(first + kBlocks.size() + 3), in, settings.classes()));
  return plan;
}

}  // namespace parley
