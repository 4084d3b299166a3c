#include <cmath>

#include "server/parameter_shard/optimizer_kernels.h"

namespace parley::kernels {

template <class T>
void Adagrad(const OptimizerSettings& settings, double rate, uint64_t step_count, size_t count,
             const float* __restrict gradient, T* __restrict parameter, T* __restrict sum) {
  const double steps = static_cast<double>(step_count);
  const T minus_step = static_cast<T>(-(rate / (1 + (steps - 1) * settings.rate_decay)));
  const T epsilon = static_cast<T>(settings.epsilon);
  const T decay = static_cast<T>(settings.weight_decay);
  const bool decays = settings.weight_decay != 0;
  Run([=]() PARLEY_KERNEL {
    PARLEY_APART
    for (size_t i = 0; i < count; ++i) {
      T g = gradient[i];
      if (decays) g = Fma(decay, parameter[i], g);
      const T squares = Fma(g, g, sum[i]);
      sum[i] = squares;
      parameter[i] = parameter[i] + minus_step * g / (std::sqrt(squares) + epsilon);
    }
  });
}

template void Adagrad<float>(const OptimizerSettings&, double, uint64_t, size_t, const float*,
                             float*, float*);
template void Adagrad<double>(const OptimizerSettings&, double, uint64_t, size_t, const float*,
                              double*, double*);

}  // namespace parley::kernels
