#include "worker/models/sleeping.h"

#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "worker/models/deferred_weights.h"

namespace parley {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void Sleep(double seconds) { absl::SleepFor(absl::Seconds(seconds)); }

struct SleepingFunction : public torch::autograd::Function<SleepingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            double of_input, double of_weight) {
    context->save_for_backward({x, weight});
    context->saved_data["of_input"] = of_input;
    context->saved_data["of_weight"] = of_weight;
    // A context keeps numbers and tensors only.
    context->saved_data["into"] =
        static_cast<int64_t>(reinterpret_cast<intptr_t>(DeferredWeights::current()));
    return x * weight;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &gradient = outputs[0];
    const auto weights = [x, weight, gradient,
                          seconds = context->saved_data.at("of_weight").toDouble()] {
      Sleep(seconds);
      return (gradient * x).sum().reshape(weight.sizes());
    };
    Sleep(context->saved_data.at("of_input").toDouble());
    const at::Tensor of_x = gradient * weight;
    auto* const into = reinterpret_cast<DeferredWeights*>(
        static_cast<intptr_t>(context->saved_data.at("into").toInt()));
    if (into == nullptr) return {of_x, weights(), at::Tensor(), at::Tensor()};
    into->Note([weights, weight] { return DeferredWeights::Gradients{{weight, weights()}}; });
    return {of_x, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

absl::StatusOr<std::vector<LayerPlan>> PlanSleeping(const Sleeping& settings,
                                                    const SampleLayout& x) {
  if (x.dtype != F32) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model sleeping takes samples of F32; the data has samples of ", DataType_Name(x.dtype)));
  }
  std::vector<LayerPlan> plan;
  for (uint32_t i = 0; i < settings.layers(); ++i) {
    const std::string name = absl::StrCat("sleeping.", i);
    const bool is_last = i + 1 == settings.layers();
    plan.push_back(PlanLayer(name, [name, is_last, settings](LayerSet& tensors) -> LayerForward {
      const at::Tensor weight = tensors.AddWeight(name + ".weight", {1, 1}, Initial::kTenth);
      return [weight, is_last, settings](const at::Tensor& h, bool /*training*/) {
        Sleep(settings.forward_seconds());
        const at::Tensor out =
            SleepingFunction::apply(h, weight.reshape({1}), settings.input_gradient_seconds(),
                                    settings.weight_gradient_seconds());
        return is_last ? out.flatten(1) : out;
      };
    }));
  }
  return plan;
}

}  // namespace parley
