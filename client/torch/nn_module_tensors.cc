#include <torch/nn/module.h>

#include "client/torch/named_tensors.h"

namespace parley {

std::vector<NamedTensor> TensorsOf(const torch::nn::Module& module) {
  std::vector<NamedTensor> tensors;
  for (const auto& item : module.named_parameters()) {
    tensors.push_back({item.key(), item.value(), false});
  }
  for (const auto& item : module.named_buffers()) {
    tensors.push_back({item.key(), item.value(), true});
  }
  return WithoutRepetitions(std::move(tensors));
}

}  // namespace parley
