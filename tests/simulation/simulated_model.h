#ifndef PARLEY_TESTS_SIMULATION_SIMULATED_MODEL_H_
#define PARLEY_TESTS_SIMULATION_SIMULATED_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/types.pb.h"

// What simulated workers train: sums of small integers, which are exact.
namespace parley {

// Some tensors, so that each shard has some.
inline const std::vector<std::pair<std::string, int64_t>> kTensors = {
    {"a", 3}, {"b", 5}, {"c", 1}, {"d", 4}, {"e", 7}};

inline std::vector<TensorSpec> Tensors() {
  std::vector<TensorSpec> tensors;
  for (const auto& [name, elements] : kTensors) {
    TensorSpec& tensor = tensors.emplace_back();
    tensor.set_name(name);
    tensor.set_dtype(F32);
    tensor.add_shape(elements);
  }
  return tensors;
}

inline size_t Elements() {
  size_t elements = 0;
  for (const auto& [name, count] : kTensors) elements += static_cast<size_t>(count);
  return elements;
}

// Element `element` of the gradient of one sample: a small integer, so that sums are exact.
inline float GradientOf(uint64_t sample, size_t element) {
  return static_cast<float>((sample * 2654435761U + element * 40503U) >> 7 & 7) - 3.0F;
}

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_SIMULATED_MODEL_H_
