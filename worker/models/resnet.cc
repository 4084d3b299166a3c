#include "worker/models/resnet.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/torch/torch_status.h"
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

class ResNetNetwork final : public Network {
 public:
  ResNetNetwork(const Shape& shape, int64_t channels, int64_t classes, uint64_t seed)
      : layers_(seed) {
    stem_ = AddConv("conv1", "bn1", {channels, 64, 7, 2, 3, false});
    int64_t in = 64;
    for (size_t layer = 0; layer < shape.blocks.size(); ++layer) {
      const int64_t width = 64 << layer;
      for (int block = 0; block < shape.blocks[layer]; ++block) {
        const int64_t stride = layer > 0 && block == 0 ? 2 : 1;
        const std::string name = absl::StrCat("layer", layer + 1, ".", block, ".");
        in = AddBlock(name, shape.bottleneck, in, width, stride);
      }
    }
    fc_ = layers_.AddLinear("fc", in, classes, Initial::kUniform);
  }

  at::Tensor Forward(const at::Tensor& x) override {
    at::Tensor h = at::max_pool2d(stem_(x, training_).relu_(), 3, 2, 1);
    for (const Block& block : blocks_) h = block(h, training_);
    return fc_(at::adaptive_avg_pool2d(h, {1, 1}).flatten(1));
  }

  void SetTraining(bool training) override { training_ = training; }

  std::vector<NamedTensor> Tensors() const override { return layers_.tensors(); }

 private:
  NormedConv AddConv(const std::string& conv, const std::string& norm,
                     const LayerSet::ConvShape& shape) {
    NormedConv both;
    both.conv = layers_.AddConv(conv, shape, kConvInitial);
    both.norm = layers_.AddBatchNorm(norm, shape.out);
    return both;
  }

  // Returns its output's channels.
  int64_t AddBlock(const std::string& name, bool bottleneck, int64_t in, int64_t width,
                   int64_t stride) {
    const int64_t out = bottleneck ? 4 * width : width;
    Block block;
    const auto add = [&](int number, const LayerSet::ConvShape& shape) {
      block.convs.push_back(
          AddConv(absl::StrCat(name, "conv", number), absl::StrCat(name, "bn", number), shape));
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
      block.downsample =
          AddConv(name + "downsample.0", name + "downsample.1", {in, out, 1, stride, 0, false});
    }
    blocks_.push_back(std::move(block));
    return out;
  }

  LayerSet layers_;
  NormedConv stem_;
  std::vector<Block> blocks_;
  Linear fc_;
  bool training_ = true;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> MakeResNet(const ResNet& settings, uint64_t seed,
                                                    const SampleLayout& image) {
  const std::optional<Shape> shape = ShapeOf(settings.depth());
  if (!shape.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model resnet has depth 18, 34 or 50, not ", settings.depth()));
  }
  absl::Status fits = CheckImages("resnet", image, /*least_side=*/1, settings.classes());
  if (!fits.ok()) return fits;
  std::unique_ptr<Network> network;
  const absl::Status made = CatchTorch(absl::StrCat("making ResNet-", settings.depth()), [&] {
    network = std::make_unique<ResNetNetwork>(*shape, image.shape[0], settings.classes(), seed);
  });
  if (!made.ok()) return made;
  return network;
}

}  // namespace parley
