#include "worker/models/deferred_weights.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <optional>

namespace parley {
namespace {

thread_local DeferredWeights* t_current = nullptr;

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A context keeps numbers and tensors only.
int64_t AsNumber(DeferredWeights& into) {
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(&into));
}
DeferredWeights& Into(const AutogradContext& context) {
  return *reinterpret_cast<DeferredWeights*>(
      static_cast<intptr_t>(context.saved_data.at("into").toInt()));
}

// A layer's bias, if it has one.
std::optional<at::Tensor> Optional(const at::Tensor& bias) {
  return bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
}

at::Tensor Rows(const at::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

struct LinearFunction : public torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, int64_t into) {
    context->save_for_backward({x, weight, bias.value_or(at::Tensor())});
    context->saved_data["into"] = into;
    return at::linear(x, weight, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const at::Tensor& gradient = outputs[0];
    Into(*context).Note([x, weight, bias, gradient] {
      const at::Tensor rows = Rows(gradient);
      DeferredWeights::Gradients gradients = {{weight, rows.t().mm(Rows(x))}};
      if (bias.defined()) gradients.emplace_back(bias, rows.sum(0));
      return gradients;
    });
    at::Tensor of_x;
    if (context->needs_input_grad(0)) of_x = Rows(gradient).mm(weight).view_as(x);
    return {of_x, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct ConvFunction : public torch::autograd::Function<ConvFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, int64_t stride, int64_t padding,
                            int64_t into) {
    context->save_for_backward({x, weight, bias.value_or(at::Tensor())});
    context->saved_data["into"] = into;
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    return at::conv2d(x, weight, bias, stride, padding);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const at::Tensor& gradient = outputs[0];
    const int64_t stride = context->saved_data.at("stride").toInt();
    const int64_t padding = context->saved_data.at("padding").toInt();
    const auto backward = [x, weight, bias, gradient, stride, padding](std::array<bool, 3> which) {
      return at::convolution_backward(
          gradient, x, weight,
          bias.defined() ? at::OptionalIntArrayRef(bias.sizes()) : at::OptionalIntArrayRef(),
          {stride, stride}, {padding, padding}, {1, 1}, /*transposed=*/false, {0, 0}, /*groups=*/1,
          which);
    };
    Into(*context).Note([backward, weight, bias] {
      const auto [none, of_weight, of_bias] = backward({false, true, bias.defined()});
      DeferredWeights::Gradients gradients = {{weight, of_weight}};
      if (bias.defined()) gradients.emplace_back(bias, of_bias);
      return gradients;
    });
    at::Tensor of_x;
    if (context->needs_input_grad(0)) of_x = std::get<0>(backward({true, false, false}));
    return {of_x, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

DeferredWeights::Scope::Scope(DeferredWeights& into) : outer_(t_current) { t_current = &into; }
DeferredWeights::Scope::~Scope() { t_current = outer_; }

DeferredWeights* DeferredWeights::current() { return t_current; }

void DeferredWeights::Compute(
    absl::FunctionRef<void(const at::Tensor& parameter, const at::Tensor& gradient)> take) {
  for (std::function<Gradients()>& noted : noted_) {
    for (const auto& [parameter, gradient] : noted()) take(parameter, gradient);
    noted = nullptr;  // what it was made of is not needed any more
  }
  noted_.clear();
}

at::Tensor DeferredLinear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          DeferredWeights& into) {
  return LinearFunction::apply(x, weight, Optional(bias), AsNumber(into));
}

at::Tensor DeferredConv(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        int64_t stride, int64_t padding, DeferredWeights& into) {
  return ConvFunction::apply(x, weight, Optional(bias), stride, padding, AsNumber(into));
}

}  // namespace parley
