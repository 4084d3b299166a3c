#include "worker/models/resnet.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
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

constexpr Initial kConvInitial = Initial::kKaimingFanOut;

// Two convolutions of 3x3, or one of 1x1, 3x3 and 1x1, around which the input goes too.
struct Block {
  std::vector<NormedConv> convs;
  std::optional<NormedConv> downsample;

  at::Tensor operator()(const at::Tensor& x, bool training) const {
    at::Tensor h = x;
    for (const NormedConv& conv : convs) {
      h = conv(h, training);
      if (&conv != &convs.back()) h.relu_();
    }
    h += downsample.has_value() ? (*downsample)(x, training) : x;
    return h.relu_();
  }
};

struct Shape {
  std::array<int, 4> blocks;  // of each layer
  bool bottleneck;
};

std::optional<Shape> ShapeOf(uint32_t depth) {
  switch (depth) {
    case 18:
      return Shape{{2, 2, 2, 2}, false};
    case 34:
      return Shape{{3, 4, 6, 3}, false};
    case 50:
      return Shape{{3, 4, 6, 3}, true};
    default:
      return std::nullopt;
  }
}

NormedConv AddConv(LayerSet& tensors, const std::string& conv, const std::string& norm,
                   const LayerSet::ConvShape& shape) {
  NormedConv both;
  both.conv = tensors.AddConv(conv, shape, kConvInitial);
  both.norm = tensors.AddBatchNorm(norm, shape.out);
  return both;
}

struct BlockShape {
  bool bottleneck;
  int64_t in;
  int64_t width;
  int64_t stride;

  int64_t out() const { return bottleneck ? 4 * width : width; }
};

Block AddBlock(LayerSet& tensors, const std::string& name, const BlockShape& shape) {
  const auto [bottleneck, in, width, stride] = shape;
  const int64_t out = shape.out();
  Block block;
  const auto add = [&](int number, const LayerSet::ConvShape& conv) {
    block.convs.push_back(AddConv(tensors, absl::StrCat(name, ".conv", number),
                                  absl::StrCat(name, ".bn", number), conv));
  };
  if (bottleneck) {
    add(1, {in, width, 1, 1, 0, false});
    add(2, {width, width, 3, stride, 1, false});
    add(3, {width, out, 1, 1, 0, false});
  } else {
    add(1, {in, width, 3, stride, 1, false});
    add(2, {width, width, 3, 1, 1, false});
  }
  if (stride != 1 || in != out) {
    block.downsample = AddConv(tensors, name + ".downsample.0", name + ".downsample.1",
                               {in, out, 1, stride, 0, false});
  }
  return block;
}

LayerPlan PlanStem(int64_t channels) {
  return PlanLayer("conv1", [channels](LayerSet& tensors) -> LayerForward {
    const NormedConv stem = AddConv(tensors, "conv1", "bn1", {channels, 64, 7, 2, 3, false});
    return [stem](const at::Tensor& x, bool training) {
      return at::max_pool2d(stem(x, training).relu_(), 3, 2, 1);
    };
  });
}

LayerPlan PlanBlock(const std::string& name, const BlockShape& shape) {
  return PlanLayer(name, [name, shape](LayerSet& tensors) -> LayerForward {
    return AddBlock(tensors, name, shape);
  });
}

LayerPlan PlanEnd(int64_t in, int64_t classes) {
  return PlanLayer("fc", [in, classes](LayerSet& tensors) -> LayerForward {
    const Linear fc = tensors.AddLinear("fc", in, classes, Initial::kUniform);
    return [fc](const at::Tensor& x, bool /*training*/) {
      return fc(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
    };
  });
}

}  // namespace

absl::StatusOr<std::vector<LayerPlan>> PlanResNet(const ResNet& settings,
                                                  const SampleLayout& image) {
  const std::optional<Shape> shape = ShapeOf(settings.depth());
  if (!shape.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model resnet has depth 18, 34 or 50, not ", settings.depth()));
  }
  absl::Status fits = CheckImages("resnet", image, /*least_side=*/1, settings.classes());
  if (!fits.ok()) return fits;
  std::vector<LayerPlan> plan = {PlanStem(image.shape[0])};
  int64_t in = 64;
  for (size_t layer = 0; layer < shape->blocks.size(); ++layer) {
    for (int number = 0; number < shape->blocks[layer]; ++number) {
      const int64_t stride = layer > 0 && number == 0 ? 2 : 1;
      const BlockShape block = {shape->bottleneck, in, int64_t{64} << layer, stride};
      plan.push_back(PlanBlock(absl::StrCat("layer", layer + 1, ".", number), block));
      in = block.out();
    }
  }
  plan.push_back(PlanEnd(in, settings.classes()));
  return plan;
}

}  // namespace parley
