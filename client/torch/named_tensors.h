#ifndef PARLEY_CLIENT_TORCH_NAMED_TENSORS_H_
#define PARLEY_CLIENT_TORCH_NAMED_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/types.pb.h"

namespace torch {
namespace nn {
class Module;
}
namespace jit {
struct Module;
}
}  // namespace torch

namespace parley {

// A parameter or buffer of a module, by PyTorch's name: conv1.weight.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  bool buffer = false;
};

// Parameters and buffers of a module and its submodules, in the order of their registration,
// parameters first. A tensor that has two names (a tied one) is given once, with its first; one
// without elements not at all.
std::vector<NamedTensor> TensorsOf(const torch::nn::Module& module);
std::vector<NamedTensor> TensorsOf(const torch::jit::Module& module);

// What the service is told of them. A parameter that cannot be trained because it holds integers
// counts as a buffer. InvalidArgument where there is nothing to train, or a tensor is none that the
// service can hold: sparse, on another device than the CPU, of an element type that DataType lacks.
absl::StatusOr<std::vector<TensorSpec>> SpecsOf(const std::vector<NamedTensor>& tensors);

// Their shadows: what a ModuleBinding ties to the session where the tensors themselves go to a
// device, or lie on one already. Tensors in the same order, of the same names and values,
// contiguous and on the CPU; they stay there, with memory of their own, and know whether a gradient
// is asked for.
std::vector<NamedTensor> ShadowsOf(const std::vector<NamedTensor>& tensors);

// Takes out the tensors that came before under another name, and the empty ones.
std::vector<NamedTensor> WithoutRepetitions(std::vector<NamedTensor> tensors);

}  // namespace parley

#endif  // PARLEY_CLIENT_TORCH_NAMED_TENSORS_H_
