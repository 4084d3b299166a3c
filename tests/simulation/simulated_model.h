#ifndef PARLEY_TESTS_SIMULATION_SIMULATED_MODEL_H_
#define PARLEY_TESTS_SIMULATION_SIMULATED_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/types.pb.h"

namespace parley {

// What simulated workers train: some small tensors, one slice each, of which the last is a buffer;
// in some jobs one has more elements, and as an embedding's most of its gradients are zeros.
// Gradients are small integers, so that sums are exact.
class SimulatedModel {
 public:
  // So many that each of three shards has some.
  SimulatedModel() : SimulatedModel({3, 5, 1, 4, 7, 2}) {}
  // One with blocks of zeros, which are left out or not read.
  static SimulatedModel WithZeros() { return SimulatedModel({3, 5, kWide, 4, 7, 2}); }
  // Elements of each tensor.
  explicit SimulatedModel(std::vector<int64_t> sizes) : sizes_(std::move(sizes)) {}

  size_t tensors() const { return sizes_.size(); }
  size_t size(size_t tensor) const { return static_cast<size_t>(sizes_[tensor]); }
  bool IsBuffer(size_t tensor) const { return tensor + 1 == sizes_.size(); }
  size_t elements() const {
    return static_cast<size_t>(std::accumulate(sizes_.begin(), sizes_.end(), int64_t{0}));
  }

  std::vector<TensorSpec> Specs() const {
    std::vector<TensorSpec> specs;
    for (size_t tensor = 0; tensor < tensors(); ++tensor) {
      TensorSpec& spec = specs.emplace_back();
      spec.set_name(absl::StrCat("tensor", tensor));
      spec.set_dtype(F32);
      spec.add_shape(sizes_[tensor]);
      spec.set_buffer(IsBuffer(tensor));
    }
    return specs;
  }

  // What a worker writes for element `element` (of all) of that tensor.
  float WrittenBy(const std::vector<uint64_t>& samples, bool mean, size_t tensor,
                  size_t element) const {
    if (IsBuffer(tensor)) return StatisticOf(samples, element);
    float sum = 0;
    for (const uint64_t sample : samples) sum += GradientOf(sample, element);
    // Of one sample or two: exact.
    return mean && !samples.empty() ? sum / static_cast<float>(samples.size()) : sum;
  }

  // The buffer after a worker has computed on these samples: another one for each first sample.
  static float StatisticOf(const std::vector<uint64_t>& samples, size_t element) {
    return samples.empty() ? 0.0F : static_cast<float>(samples.front() * 16 + element + 1);
  }

 private:
  // Nine blocks of 1,024 elements, the last one not full, from element 8 on. The middle seven hold
  // nothing but zeros.
  static constexpr int64_t kWide = 8200;
  static bool IsZero(size_t element) { return element >= 8 + 1024 && element < 8 + 8 * 1024; }

  // Element `element` of the gradient of one sample: a small integer.
  static float GradientOf(uint64_t sample, size_t element) {
    if (IsZero(element)) return 0;
    return static_cast<float>((sample * 2654435761U + element * 40503U) >> 7 & 7) - 3.0F;
  }

  std::vector<int64_t> sizes_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_SIMULATED_MODEL_H_
