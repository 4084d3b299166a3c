#include "worker/models/xresnet.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/torch/torch_status.h"
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

class XResNet50 final : public Network {
 public:
  XResNet50(int64_t channels, int64_t classes, uint64_t seed) : layers_(seed) {
    int64_t in = channels;
    for (size_t i = 0; i < kStem.size(); ++i) {
      stem_.push_back(Add(absl::StrCat(i), in, kStem[i], 3, i == 0 ? 2 : 1));
      in = kStem[i];
    }
    const size_t first = kStem.size() + 1;  // after the pooling
    for (size_t layer = 0; layer < kBlocks.size(); ++layer) {
      const int64_t width = 64 << layer;
      for (int block = 0; block < kBlocks[layer]; ++block) {
        const std::string name = absl::StrCat(first + layer, ".", block, ".");
        AddBlock(name, in, width, layer > 0 && block == 0 ? 2 : 1);
        in = kExpansion * width;
      }
    }
    // Between them: averaging, flattening, a dropout of nothing.
    fc_ = layers_.AddLinear(absl::StrCat(first + kBlocks.size() + 3), in, classes, kInitial);
  }

  at::Tensor Forward(const at::Tensor& x) override {
    at::Tensor h = x;
    for (const NormedConv& layer : stem_) h = layer(h, training_).relu_();
    h = at::max_pool2d(h, 3, 2, 1);
    for (const Block& block : blocks_) h = block(h, training_);
    return fc_(at::adaptive_avg_pool2d(h, {1, 1}).flatten(1));
  }

  void SetTraining(bool training) override { training_ = training; }

  std::vector<NamedTensor> Tensors() const override { return layers_.tensors(); }

 private:
  // What fastai calls a ConvLayer: NAME.0 and NAME.1.
  NormedConv Add(const std::string& name, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                 double norm_weight = 1) {
    NormedConv layer;
    layer.conv =
        layers_.AddConv(name + ".0", {in, out, kernel, stride, (kernel - 1) / 2, false}, kInitial);
    layer.norm = layers_.AddBatchNorm(name + ".1", out, norm_weight);
    return layer;
  }

  void AddBlock(const std::string& name, int64_t in, int64_t width, int64_t stride) {
    const int64_t out = kExpansion * width;
    Block block;
    block.path = {Add(name + "convpath.0", in, width, 1, 1),
                  Add(name + "convpath.1", width, width, 3, stride),
                  Add(name + "convpath.2", width, out, 1, 1, /*norm_weight=*/0)};
    block.pools = stride != 1;
    if (in != out) {
      block.identity = Add(absl::StrCat(name, "idpath.", block.pools ? 1 : 0), in, out, 1, 1);
    }
    blocks_.push_back(std::move(block));
  }

  LayerSet layers_;
  std::vector<NormedConv> stem_;
  std::vector<Block> blocks_;
  Linear fc_;
  bool training_ = true;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> MakeXResNet50(const ImageClasses& settings, uint64_t seed,
                                                       const SampleLayout& image) {
  absl::Status fits = CheckImages("xresnet50", image, /*least_side=*/1, settings.classes());
  if (!fits.ok()) return fits;
  std::unique_ptr<Network> network;
  const absl::Status made = CatchTorch("making xresnet50", [&] {
    network = std::make_unique<XResNet50>(image.shape[0], settings.classes(), seed);
  });
  if (!made.ok()) return made;
  return network;
}

}  // namespace parley
