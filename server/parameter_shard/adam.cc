#include <cmath>

#include "server/parameter_shard/optimizer_kernels.h"

namespace parley::kernels {

template <class T>
void Adam(const OptimizerSettings& settings, double rate, uint64_t step_count, size_t count,
          const float* __restrict gradient, T* __restrict parameter, T* __restrict exp_avg,
          T* __restrict exp_avg_sq, T* __restrict max_exp_avg_sq) {
  const double steps = static_cast<double>(step_count);
  const double correction1 = 1 - std::pow(settings.beta1, steps);
  const double correction2 = 1 - std::pow(settings.beta2, steps);
  const T minus_step = static_cast<T>(-(rate / correction1));
  const T correction2_root = static_cast<T>(std::sqrt(correction2));
  const T weight1 = static_cast<T>(1 - settings.beta1);
  const T beta2 = static_cast<T>(settings.beta2);
  const T weight2 = static_cast<T>(1 - settings.beta2);
  const T epsilon = static_cast<T>(settings.epsilon);
  const T decay = static_cast<T>(settings.weight_decay);
  const T shrink = static_cast<T>(1 - rate * settings.weight_decay);
  const bool decays = settings.weight_decay != 0;
  const bool decoupled = settings.kind == OptimizerSettings::Kind::kAdamW;

  for (size_t i = 0; i < count; ++i) {
    T p = parameter[i];
    T g = gradient[i];
    if (decays) {
      if (decoupled) {
        p = p * shrink;
      } else {
        g = g + decay * p;
      }
    }
    const T mean = Lerp(exp_avg[i], g, weight1);
    T square = exp_avg_sq[i] * beta2;
    square = square + weight2 * g * g;
    exp_avg[i] = mean;
    exp_avg_sq[i] = square;
    if (max_exp_avg_sq != nullptr) {
      // As torch.maximum, a NaN on either side stays.
      const T largest = max_exp_avg_sq[i];
      square = (largest > square || largest != largest) ? largest : square;
      max_exp_avg_sq[i] = square;
    }
    const T denominator = std::sqrt(square) / correction2_root + epsilon;
    parameter[i] = p + minus_step * mean / denominator;
  }
}

template void Adam<float>(const OptimizerSettings&, double, uint64_t, size_t, const float*, float*,
                          float*, float*, float*);
template void Adam<double>(const OptimizerSettings&, double, uint64_t, size_t, const float*,
                           double*, double*, double*, double*);

}  // namespace parley::kernels
