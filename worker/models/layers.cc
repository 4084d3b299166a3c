#include "worker/models/layers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <utility>

#include "common/seed.h"

namespace parley {
namespace {

// PyTorch's defaults.
constexpr double kMomentum = 0.1;
constexpr double kEpsilon = 1e-5;

at::Generator GeneratorOf(uint64_t seed, const std::string& parameter) {
  return at::make_generator<at::CPUGeneratorImpl>(DeriveSeed(seed, "initial " + parameter));
}

// Elements of one output's weight; and of the weights that one input goes to.
int64_t FanIn(at::IntArrayRef shape) {
  int64_t count = 1;
  for (const int64_t size : shape.slice(1)) count *= size;
  return count;
}

int64_t FanOut(at::IntArrayRef shape) { return FanIn(shape) / shape[1] * shape[0]; }

double UniformBound(at::IntArrayRef shape) {
  return 1 / std::sqrt(static_cast<double>(FanIn(shape)));
}

double Deviation(at::IntArrayRef shape, Initial initial) {
  if (initial == Initial::kSmallNormal) return 0.01;
  const int64_t fan = initial == Initial::kKaimingFanIn ? FanIn(shape) : FanOut(shape);
  return std::sqrt(2 / static_cast<double>(fan));
}

}  // namespace

at::Tensor Conv::operator()(const at::Tensor& x) const {
  return at::conv2d(x, weight, bias, stride, padding);
}

at::Tensor Linear::operator()(const at::Tensor& x) const { return at::linear(x, weight, bias); }

at::Tensor BatchNorm::operator()(const at::Tensor& x, bool training) const {
  if (training) {
    const c10::NoGradGuard no_grad;
    batches.add_(1);
  }
  return at::batch_norm(x, weight, bias, running_mean, running_var, training, kMomentum, kEpsilon,
                        /*cudnn_enabled=*/false);
}

at::Tensor LayerSet::Parameter(const std::string& name, at::Tensor values) {
  values.set_requires_grad(true);
  parameters_.push_back({name, values});
  return values;
}

at::Tensor LayerSet::Weight(const std::string& name, at::IntArrayRef shape, Initial initial) {
  at::Tensor values = at::empty(shape, at::kFloat);
  const at::Generator generator = GeneratorOf(seed_, name);
  if (initial == Initial::kUniform) {
    const double bound = UniformBound(shape);
    values.uniform_(-bound, bound, generator);
  } else {
    values.normal_(0, Deviation(shape, initial), generator);
  }
  return Parameter(name, std::move(values));
}

at::Tensor LayerSet::Bias(const std::string& name, const at::Tensor& weight, Initial initial) {
  at::Tensor values = at::zeros({weight.size(0)}, at::kFloat);
  if (initial == Initial::kUniform) {
    const double bound = UniformBound(weight.sizes());
    values.uniform_(-bound, bound, GeneratorOf(seed_, name));
  }
  return Parameter(name, std::move(values));
}

Conv LayerSet::AddConv(const std::string& name, const ConvShape& shape, Initial initial) {
  Conv conv;
  conv.weight =
      Weight(name + ".weight", {shape.out, shape.in, shape.kernel, shape.kernel}, initial);
  if (shape.bias) conv.bias = Bias(name + ".bias", conv.weight, initial);
  conv.stride = shape.stride;
  conv.padding = shape.padding;
  return conv;
}

Linear LayerSet::AddLinear(const std::string& name, int64_t in, int64_t out, Initial initial) {
  Linear linear;
  linear.weight = Weight(name + ".weight", {out, in}, initial);
  linear.bias = Bias(name + ".bias", linear.weight, initial);
  return linear;
}

BatchNorm LayerSet::AddBatchNorm(const std::string& name, int64_t channels, double weight) {
  BatchNorm norm;
  norm.weight = Parameter(name + ".weight", at::full({channels}, weight, at::kFloat));
  norm.bias = Parameter(name + ".bias", at::zeros({channels}, at::kFloat));
  norm.running_mean = at::zeros({channels}, at::kFloat);
  norm.running_var = at::ones({channels}, at::kFloat);
  norm.batches = at::zeros({}, at::kLong);
  buffers_.push_back({name + ".running_mean", norm.running_mean, true});
  buffers_.push_back({name + ".running_var", norm.running_var, true});
  buffers_.push_back({name + ".num_batches_tracked", norm.batches, true});
  return norm;
}

std::vector<NamedTensor> LayerSet::tensors() const {
  std::vector<NamedTensor> all = parameters_;
  all.insert(all.end(), buffers_.begin(), buffers_.end());
  return all;
}

}  // namespace parley
