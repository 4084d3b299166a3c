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

// Some tensors, so that each shard has some. The last one is a buffer.
inline const std::vector<std::pair<std::string, int64_t>> kTensors = {
    {"a", 3}, {"b", 5}, {"c", 1}, {"d", 4}, {"e", 7}, {"statistics", 2}};

inline bool IsBuffer(size_t tensor) { return tensor + 1 == kTensors.size(); }

inline std::vector<TensorSpec> Tensors() {
  std::vector<TensorSpec> tensors;
  for (const auto& [name, elements] : kTensors) {
    TensorSpec& tensor = tensors.emplace_back();
    tensor.set_name(name);
    tensor.set_dtype(F32);
    tensor.add_shape(elements);
    tensor.set_buffer(IsBuffer(tensors.size() - 1));
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

// The buffer after a worker has computed on these samples: another one for each first sample.
inline float StatisticOf(const std::vector<uint64_t>& samples, size_t element) {
  return samples.empty() ? 0.0F : static_cast<float>(samples.front() * 16 + element + 1);
}

// What a worker writes for element `element` (of all) of tensor `tensor`.
inline float WrittenBy(const std::vector<uint64_t>& samples, bool mean, size_t tensor,
                       size_t element) {
  if (IsBuffer(tensor)) return StatisticOf(samples, element);
  float sum = 0;
  for (const uint64_t sample : samples) sum += GradientOf(sample, element);
  // Of one sample or two: exact.
  return mean && !samples.empty() ? sum / static_cast<float>(samples.size()) : sum;
}

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_SIMULATED_MODEL_H_
