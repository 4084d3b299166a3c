#include <torch/csrc/jit/api/module.h>

#include "client/torch/module_binding.h"
#include "client/torch/named_tensors.h"

namespace parley {

std::vector<NamedTensor> TensorsOf(const torch::jit::Module& module) {
  std::vector<NamedTensor> tensors;
  for (const auto& item : module.named_parameters()) {
    tensors.push_back({item.name, item.value, false});
  }
  for (const auto& item : module.named_buffers()) {
    tensors.push_back({item.name, item.value, true});
  }
  return WithoutRepetitions(std::move(tensors));
}

absl::StatusOr<std::unique_ptr<ModuleBinding>> ModuleBinding::Create(
    const torch::jit::Module& module) {
  return Create(Lister([module] { return TensorsOf(module); }));
}

}  // namespace parley
