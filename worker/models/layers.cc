#include "worker/models/layers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "common/seed.h"
#include "worker/models/deferred_weights.h"
#include "worker/models/work_count.h"

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

// Of what is drawn evenly from -bound to bound; none: from a normal distribution.
std::optional<double> UniformBound(at::IntArrayRef shape, Initial initial) {
  switch (initial) {
    case Initial::kUniform:
    case Initial::kUniformWeight:
      return 1 / std::sqrt(static_cast<double>(FanIn(shape)));
    case Initial::kXavier:
      return std::sqrt(6 / static_cast<double>(FanIn(shape) + FanOut(shape)));
    case Initial::kTenth:
      return 0.1;
    default:
      return std::nullopt;
  }
}

double Deviation(at::IntArrayRef shape, Initial initial) {
  if (initial == Initial::kSmallNormal) return 0.01;
  const int64_t fan = initial == Initial::kKaimingFanIn ? FanIn(shape) : FanOut(shape);
  return std::sqrt(2 / static_cast<double>(fan));
}

std::function<void(at::Tensor&)> Fill(double value) {
  return [value](at::Tensor& values) { values.fill_(value); };
}

std::vector<NamedTensor> ParametersFirst(std::vector<NamedTensor> tensors) {
  std::stable_partition(tensors.begin(), tensors.end(),
                        [](const NamedTensor& named) { return !named.buffer; });
  return tensors;
}

}  // namespace

at::Tensor Conv::operator()(const at::Tensor& x) const {
  DeferredWeights* const deferred = DeferredWeights::current();
  if (deferred != nullptr && weight.requires_grad()) {
    return DeferredConv(x, weight, bias, stride, padding, *deferred);
  }
  at::Tensor out = at::conv2d(x, weight, bias, stride, padding);
  WorkCount::Add(static_cast<uint64_t>(out.numel() / weight.size(0) * weight.numel()));
  return out;
}

at::Tensor Linear::operator()(const at::Tensor& x) const {
  DeferredWeights* const deferred = DeferredWeights::current();
  if (deferred != nullptr && weight.requires_grad()) {
    return DeferredLinear(x, weight, bias, *deferred);
  }
  WorkCount::Add(static_cast<uint64_t>(x.numel() / weight.size(1) * weight.numel()));
  return at::linear(x, weight, bias);
}

at::Tensor BatchNorm::operator()(const at::Tensor& x, bool training) const {
  if (training && x.numel() == x.size(1)) {
    // Of one value there is no unbiased variance: 0 / 0 would stay in the running one for good.
    return at::batch_norm(x, weight, bias, /*running_mean=*/{}, /*running_var=*/{}, training,
                          kMomentum, kEpsilon, /*cudnn_enabled=*/false);
  }
  if (training) {
    const c10::NoGradGuard no_grad;
    batches.add_(1);
  }
  return at::batch_norm(x, weight, bias, running_mean, running_var, training, kMomentum, kEpsilon,
                        /*cudnn_enabled=*/false);
}

at::Tensor LayerNorm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, weight.sizes(), weight, bias, kEpsilon);
}

at::Tensor LayerSet::Get(const std::string& name, bool buffer, at::IntArrayRef shape,
                         at::ScalarType type, const std::function<void(at::Tensor&)>& initial) {
  const auto has_name = [&](const NamedTensor& named) { return named.name == name; };
  if (const auto used = std::find_if(used_.begin(), used_.end(), has_name); used != used_.end()) {
    return used->tensor;
  }
  auto named = std::find_if(tensors_.begin(), tensors_.end(), has_name);
  if (named == tensors_.end()) {
    const at::TensorOptions options =
        at::TensorOptions().dtype(type).device(values_ == Values::kNone ? at::kMeta : at::kCPU);
    at::Tensor values =
        values_ == Values::kZero ? at::zeros(shape, options) : at::empty(shape, options);
    if (values_ == Values::kDrawn) initial(values);
    values.set_requires_grad(!buffer);
    tensors_.push_back({name, std::move(values), buffer});
    named = std::prev(tensors_.end());
  }
  used_.push_back(*named);
  return named->tensor;
}

at::Tensor LayerSet::Parameter(const std::string& name, at::IntArrayRef shape,
                               const std::function<void(at::Tensor&)>& initial) {
  // LibTorch's default: float32, which tests with more digits change.
  return Get(name, /*buffer=*/false, shape, c10::get_default_dtype_as_scalartype(), initial);
}

at::Tensor LayerSet::AddWeight(const std::string& name, at::IntArrayRef shape, Initial initial) {
  return Parameter(name, shape, [&](at::Tensor& values) {
    const at::Generator generator = GeneratorOf(seed_, name);
    if (const std::optional<double> bound = UniformBound(shape, initial)) {
      values.uniform_(-*bound, *bound, generator);
    } else {
      values.normal_(0, Deviation(shape, initial), generator);
    }
  });
}

at::Tensor LayerSet::AddBias(const std::string& name, at::IntArrayRef weight, Initial initial) {
  return Parameter(name, {weight[0]}, [&](at::Tensor& values) {
    if (initial == Initial::kUniform) {
      const double bound = *UniformBound(weight, initial);
      values.uniform_(-bound, bound, GeneratorOf(seed_, name));
    } else {
      values.zero_();
    }
  });
}

Conv LayerSet::AddConv(const std::string& name, const ConvShape& shape, Initial initial) {
  Conv conv;
  conv.weight =
      AddWeight(name + ".weight", {shape.out, shape.in, shape.kernel, shape.kernel}, initial);
  if (shape.bias) conv.bias = AddBias(name + ".bias", conv.weight.sizes(), initial);
  conv.stride = shape.stride;
  conv.padding = shape.padding;
  return conv;
}

Linear LayerSet::AddLinear(const std::string& name, int64_t in, int64_t out, Initial initial) {
  Linear linear;
  linear.weight = AddWeight(name + ".weight", {out, in}, initial);
  linear.bias = AddBias(name + ".bias", linear.weight.sizes(), initial);
  return linear;
}

LayerNorm LayerSet::AddLayerNorm(const std::string& name, int64_t features) {
  LayerNorm norm;
  norm.weight = Parameter(name + ".weight", {features}, Fill(1));
  norm.bias = Parameter(name + ".bias", {features}, Fill(0));
  return norm;
}

at::Tensor LayerSet::AddOnes(const std::string& name, at::IntArrayRef shape) {
  return Parameter(name, shape, Fill(1));
}

BatchNorm LayerSet::AddBatchNorm(const std::string& name, int64_t channels, double weight) {
  const auto buffer = [&](const std::string& of, at::IntArrayRef shape, at::ScalarType type,
                          double value) {
    return Get(name + of, /*buffer=*/true, shape, type, Fill(value));
  };
  BatchNorm norm;
  norm.weight = Parameter(name + ".weight", {channels}, Fill(weight));
  norm.bias = Parameter(name + ".bias", {channels}, Fill(0));
  norm.running_mean = buffer(".running_mean", {channels}, at::kFloat, 0);
  norm.running_var = buffer(".running_var", {channels}, at::kFloat, 1);
  norm.batches = buffer(".num_batches_tracked", {}, at::kLong, 0);
  return norm;
}

std::vector<NamedTensor> LayerSet::tensors() const { return ParametersFirst(tensors_); }

std::vector<NamedTensor> LayerSet::TakeUsed() { return ParametersFirst(std::exchange(used_, {})); }

}  // namespace parley
