#include "worker/models/transformer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/models/layers.h"

namespace parley {
namespace {

constexpr char kEmbedding[] = "encoder.weight";

struct Shape {
  int64_t tokens;
  int64_t length;
  int64_t width;
  int64_t heads;
  int64_t hidden;
  double dropout;
  bool tied;
};

// [length, width]: sines in the even columns, cosines in the odd ones, of angles that fall from
// 1 to 1/10000 for each place.
at::Tensor Positions(int64_t length, int64_t width) {
  const at::Tensor places = at::arange(length, at::kDouble).unsqueeze(1);
  const at::Tensor rates =
      (at::arange(0, width, 2, at::kDouble) * (-std::log(10000.0) / static_cast<double>(width)))
          .exp();
  const at::Tensor angles = places * rates;
  return at::stack({angles.sin(), angles.cos()}, 2).reshape({length, width});
}

LayerForward MakeEncoder(const Shape& shape, LayerSet& tensors) {
  const at::Tensor embedding =
      tensors.AddWeight(kEmbedding, {shape.tokens, shape.width}, Initial::kTenth);
  // Where and as what they are added; a copy in each forward would have the host wait for a device.
  const auto there = std::make_shared<at::Tensor>();
  return [embedding, there, positions = Positions(shape.length, shape.width),
          scale = std::sqrt(static_cast<double>(shape.width)),
          dropout = shape.dropout](const at::Tensor& x, bool training) {
    const at::Tensor h = at::embedding(embedding, x) * scale;
    if (!there->defined() || there->device() != h.device() || there->dtype() != h.dtype()) {
      *there = positions.to(h.options());
    }
    return at::dropout(h + *there, dropout, training);
  };
}

struct SelfAttention {
  Linear in;  // to queries, keys and values
  Linear out;
  int64_t heads;
  double dropout;

  at::Tensor operator()(const at::Tensor& x, bool training) const {
    const int64_t samples = x.size(0);
    const int64_t length = x.size(1);
    const int64_t width = x.size(2);
    const at::Tensor parts =
        in(x).reshape({samples, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    const at::Tensor seen =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], /*attn_mask=*/{},
                                         training ? dropout : 0.0, /*is_causal=*/true);
    return out(seen.transpose(1, 2).reshape({samples, length, width}));
  }
};

SelfAttention AddSelfAttention(LayerSet& tensors, const std::string& name, const Shape& shape) {
  const std::vector<int64_t> in = {3 * shape.width, shape.width};
  SelfAttention attention;
  attention.in.weight = tensors.AddWeight(name + ".in_proj_weight", in, Initial::kXavier);
  attention.in.bias = tensors.AddBias(name + ".in_proj_bias", in, Initial::kXavier);
  attention.out =
      tensors.AddLinear(name + ".out_proj", shape.width, shape.width, Initial::kUniformWeight);
  attention.heads = shape.heads;
  attention.dropout = shape.dropout;
  return attention;
}

LayerForward MakeBlock(const std::string& name, const Shape& shape, LayerSet& tensors) {
  const SelfAttention attention = AddSelfAttention(tensors, name + ".self_attn", shape);
  const Linear linear1 =
      tensors.AddLinear(name + ".linear1", shape.width, shape.hidden, Initial::kUniform);
  const Linear linear2 =
      tensors.AddLinear(name + ".linear2", shape.hidden, shape.width, Initial::kUniform);
  const LayerNorm norm1 = tensors.AddLayerNorm(name + ".norm1", shape.width);
  const LayerNorm norm2 = tensors.AddLayerNorm(name + ".norm2", shape.width);
  return [=, rate = shape.dropout](const at::Tensor& x, bool training) {
    const at::Tensor h = norm1(x + at::dropout(attention(x, training), rate, training));
    const at::Tensor forward = linear2(at::dropout(at::relu(linear1(h)), rate, training));
    return norm2(h + at::dropout(forward, rate, training));
  };
}

// keeps, joins: ends of a skip connection.
LayerPlan PlanBlock(const std::string& name, const Shape& shape, bool keeps, bool joins) {
  return {name, [=](LayerSet& tensors) {
            at::Tensor weight;
            NetworkLayer layer = PlanLayer(name, [&](LayerSet& set) {
                                   if (joins) weight = set.AddOnes(name + ".skip_weight", {1});
                                   return MakeBlock(name, shape, set);
                                 }).make(tensors);
            layer.keeps = keeps;
            if (joins) {
              layer.join = [weight](const at::Tensor& x, const at::Tensor& kept) {
                return x + weight * kept;
              };
            }
            return layer;
          }};
}

LayerForward MakeDecoder(const Shape& shape, LayerSet& tensors) {
  const std::vector<int64_t> weight = {shape.tokens, shape.width};
  Linear decoder;
  decoder.weight =
      tensors.AddWeight(shape.tied ? kEmbedding : "decoder.weight", weight, Initial::kTenth);
  decoder.bias = tensors.AddBias("decoder.bias", weight, Initial::kTenth);
  return [decoder](const at::Tensor& x, bool /*training*/) { return decoder(x).transpose(1, 2); };
}

absl::Status CheckText(const SampleLayout& text) {
  if (text.dtype == I64 && text.shape.size() == 1 && text.shape[0] > 0 && text.classes > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "model transformer takes rows of tokens, as data.text gives them; the data has samples of ",
      DataType_Name(text.dtype), " [", absl::StrJoin(text.shape, ", "), "], of ", text.classes,
      " tokens"));
}

}  // namespace

absl::StatusOr<std::vector<LayerPlan>> PlanTransformer(const Transformer& settings,
                                                       const SampleLayout& text) {
  if (absl::Status fits = CheckText(text); !fits.ok()) return fits;
  if (settings.heads() == 0 || settings.width() % settings.heads() != 0 ||
      settings.width() % 2 != 0 || settings.width() == 0 || settings.hidden() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model transformer has an even width that its heads divide, and hidden ones; not width ",
        settings.width(), ", heads ", settings.heads(), ", hidden ", settings.hidden()));
  }
  const Shape shape = {text.classes,      text.shape[0],      settings.width(), settings.heads(),
                       settings.hidden(), settings.dropout(), settings.tied()};
  std::vector<LayerPlan> plan = {
      PlanLayer("encoder", [shape](LayerSet& tensors) { return MakeEncoder(shape, tensors); })};
  const uint32_t layers = settings.layers();
  for (uint32_t i = 0; i < layers; ++i) {
    plan.push_back(PlanBlock(absl::StrCat("transformer_encoder.layers.", i), shape,
                             settings.skips() && i < layers / 2,
                             settings.skips() && i >= layers - layers / 2));
  }
  plan.push_back(
      PlanLayer("decoder", [shape](LayerSet& tensors) { return MakeDecoder(shape, tensors); }));
  return plan;
}

}  // namespace parley
