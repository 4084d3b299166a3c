// Prints as JSON what a network of worker/models is and computes, in float64, for
// models_test. model_probe MODEL
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "worker/models/network.h"

namespace parley {
namespace {

using Json = nlohmann::json;

constexpr int64_t kClasses = 10;
constexpr int64_t kSamples = 2;
constexpr int64_t kTokens = 31;
constexpr int64_t kLength = 12;

bool IsTransformer(const std::string& model) {
  return model == "transformer" || model == "tied_transformer" || model == "skip_transformer";
}

SampleLayout SampleOf(const std::string& model) {
  if (IsTransformer(model)) return {I64, {kLength}, kTokens};
  const int64_t side = model == "vgg19" ? 32 : 64;  // the larger a network, the longer Python takes
  return {F32, {3, side, side}};
}

absl::StatusOr<std::unique_ptr<Network>> Make(const std::string& model,
                                              const SampleLayout& sample) {
  JobConfig job;
  job.set_seed(7);
  if (IsTransformer(model)) {
    Transformer& transformer = *job.mutable_model()->mutable_transformer();
    transformer.set_width(24);
    transformer.set_heads(4);
    transformer.set_hidden(40);
    transformer.set_layers(3);
    transformer.set_dropout(0);
    transformer.set_tied(model == "tied_transformer");
    transformer.set_skips(model == "skip_transformer");
  } else if (model == "vgg19") {
    job.mutable_model()->mutable_vgg19()->set_classes(kClasses);
  } else if (model == "xresnet50") {
    job.mutable_model()->mutable_xresnet50()->set_classes(kClasses);
  } else {
    ResNet& resnet = *job.mutable_model()->mutable_resnet();
    resnet.set_depth(static_cast<uint32_t>(std::stoul(model.substr(std::string("resnet").size()))));
    resnet.set_classes(kClasses);
  }
  return MakeNetwork(job, sample);
}

// The same numbers in any language: sines of equally spaced angles.
at::Tensor Waves(at::IntArrayRef shape, double begin, double amplitude) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return (at::arange(count, at::kDouble) * 0.37 + begin).sin().mul(amplitude).reshape(shape);
}

double Digest(const at::Tensor& values) {
  return (values.flatten().to(at::kDouble) * Waves({values.numel()}, 1, 1)).sum().item().toDouble();
}

// Of the initial values; then other ones are put in their place.
Json Describe(const NamedTensor& named, double begin) {
  const at::Tensor values = named.tensor.detach().to(at::kDouble);
  Json json = {{"name", named.name},
               {"buffer", named.buffer},
               {"shape", named.tensor.sizes().vec()},
               {"mean", values.mean().item().toDouble()},
               {"square", values.square().mean().item().toDouble()},
               {"largest", values.abs().max().item().toDouble()}};
  at::Tensor tensor = named.tensor;
  if (tensor.scalar_type() == at::kFloat) {
    // Of variances and of what scales: around 1. Weights keep the size of what goes through.
    double fan_in = 1;
    for (int64_t i = 1; i < tensor.dim(); ++i) fan_in *= static_cast<double>(tensor.size(i));
    const at::Tensor waves = tensor.dim() < 2 ? Waves(tensor.sizes(), begin, 0.3) + 1
                                              : Waves(tensor.sizes(), begin, 2 / std::sqrt(fan_in));
    tensor.set_data(waves);
  }
  return json;
}

at::Tensor Samples(const SampleLayout& sample) {
  std::vector<int64_t> shape = sample.shape;
  shape.insert(shape.begin(), kSamples);
  if (sample.dtype == F32) return Waves(shape, 2, 1).square();
  return at::arange(kSamples * kLength).square().remainder(kTokens).reshape(shape);
}

Json Compute(Network& network, const SampleLayout& sample, bool training) {
  network.SetTraining(training);
  const at::Tensor x = Samples(sample);
  const at::Tensor y = network.Forward(x);
  (y * Waves(y.sizes(), 3, 1)).sum().backward();
  Json gradients = Json::array();
  Json buffers = Json::array();
  for (const NamedTensor& named : network.Tensors()) {
    if (named.buffer) {
      buffers.push_back(Digest(named.tensor));
    } else {
      gradients.push_back(Digest(named.tensor.grad()));
      at::Tensor tensor = named.tensor;
      tensor.mutable_grad() = at::Tensor();
    }
  }
  const at::Tensor outputs = y.detach().flatten().contiguous();
  return {{"outputs", std::vector<double>(outputs.const_data_ptr<double>(),
                                          outputs.const_data_ptr<double>() + outputs.numel())},
          {"gradients", gradients},
          {"buffers", buffers}};
}

int Run(const std::string& model) {
  at::set_num_threads(1);
  const SampleLayout sample = SampleOf(model);
  absl::StatusOr<std::unique_ptr<Network>> network = Make(model, sample);
  if (!network.ok()) {
    std::fprintf(stderr, "%s\n", std::string(network.status().message()).c_str());
    return 1;
  }
  Json tensors = Json::array();
  for (const NamedTensor& named : (*network)->Tensors()) {
    tensors.push_back(Describe(named, static_cast<double>(tensors.size())));
  }
  Json all = {{"tensors", tensors}, {"evaluation", Compute(**network, sample, false)}};
  // In the deeper ones rounding grows to what hides mistakes; which elements a dropout leaves out
  // is each LibTorch's own affair.
  if (model == "resnet18" || IsTransformer(model)) {
    all["training"] = Compute(**network, sample, true);
  }
  std::printf("%s\n", all.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) {
  if (argc == 2) return parley::Run(argv[1]);
  std::fprintf(stderr, "usage: model_probe MODEL\n");
  return 2;
}
