#ifndef PARLEY_WORKER_MODELS_DEFERRED_WEIGHTS_H_
#define PARLEY_WORKER_MODELS_DEFERRED_WEIGHTS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

namespace parley {

// The weight gradients of linear and convolution layers, left for later: the half of a backward
// that no other process waits for (zero bubble, Qi et al. 2023). A backward through what was
// computed in a Scope gives the gradients of inputs and of all other parameters at once, and notes
// here what the gradients of these layers' weights and biases are made of. They then come out as
// they would have: the same kernels on the same tensors. One thread uses it, and it must outlive
// the graph.
class DeferredWeights {
 public:
  // What layers compute on this thread while one lives is deferred to `into`.
  class Scope {
   public:
    explicit Scope(DeferredWeights& into);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    DeferredWeights* const outer_;
  };

  DeferredWeights() = default;
  DeferredWeights(const DeferredWeights&) = delete;
  DeferredWeights& operator=(const DeferredWeights&) = delete;

  // After the backward: computes what was noted, in that order, and hands it over. Once.
  void Compute(
      absl::FunctionRef<void(const at::Tensor& parameter, const at::Tensor& gradient)> take);
  bool empty() const { return noted_.empty(); }

  // For layers. Null: nothing is deferred here.
  static DeferredWeights* current();
  using Gradients = std::vector<std::pair<at::Tensor, at::Tensor>>;  // parameter, gradient
  void Note(std::function<Gradients()> gradients) { noted_.push_back(std::move(gradients)); }

 private:
  std::vector<std::function<Gradients()>> noted_;
};

// x [..., in] * weight^T + bias, as at::linear; and at::conv2d with the same stride and padding in
// both directions. Their weights' gradients are deferred to `into`.
at::Tensor DeferredLinear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          DeferredWeights& into);
at::Tensor DeferredConv(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        int64_t stride, int64_t padding, DeferredWeights& into);

}  // namespace parley

#endif  // PARLEY_WORKER_MODELS_DEFERRED_WEIGHTS_H_
