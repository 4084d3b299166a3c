#include <cmath>

#include "server/parameter_shard/optimizer_kernels.h"

namespace parley::kernels {

template <class T>
void RmsProp(const OptimizerSettings& settings, double rate, size_t count,
             const float* __restrict gradient, T* __restrict parameter, T* __restrict square_avg,
             T* __restrict grad_avg, T* __restrict momentum_buffer) {
  const T step = static_cast<T>(rate);
  const T alpha = static_cast<T>(settings.alpha);
  const T fresh = static_cast<T>(1 - settings.alpha);
  const T epsilon = static_cast<T>(settings.epsilon);
  const T decay = static_cast<T>(settings.weight_decay);
  const T momentum = static_cast<T>(settings.momentum);
  const bool decays = settings.weight_decay != 0;
  for (size_t i = 0; i < count; ++i) {
    T g = gradient[i];
    if (decays) g = g + decay * parameter[i];
    T square = square_avg[i] * alpha;
    square = square + fresh * g * g;
    square_avg[i] = square;
    if (grad_avg != nullptr) {
      const T mean = Lerp(grad_avg[i], g, fresh);
      grad_avg[i] = mean;
      square = square - mean * mean;
    }
    const T root = std::sqrt(square) + epsilon;
    if (momentum_buffer != nullptr) {
      const T buffer = momentum_buffer[i] * momentum + g / root;
      momentum_buffer[i] = buffer;
      parameter[i] = parameter[i] - step * buffer;
    } else {
      parameter[i] = parameter[i] + -step * g / root;
    }
  }
}

template void RmsProp<float>(const OptimizerSettings&, double, size_t, const float*, float*, float*,
                             float*, float*);
template void RmsProp<double>(const OptimizerSettings&, double, size_t, const float*, double*,
                              double*, double*, double*);

}  // namespace parley::kernels
