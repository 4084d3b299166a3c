#include <cmath>

#include "server/parameter_shard/optimizer_kernels.h"

namespace parley::kernels {

template <class T>
void Adagrad(const OptimizerSettings& settings, double rate, uint64_t step_count, size_t count,
             const float* __restrict gradient, Array<T> parameter, Array<T> sum) {
  const double steps = static_cast<double>(step_count);
  const T minus_step = static_cast<T>(-(rate / (1 + (steps - 1) * settings.rate_decay)));
  const T epsilon = static_cast<T>(settings.epsilon);
  const T decay = static_cast<T>(settings.weight_decay);
  const bool decays = settings.weight_decay != 0;
  const auto loop = [=](size_t count, const float* gradient, Array<T> parameter,
                        Array<T> sum) PARLEY_KERNEL {
    PARLEY_APART
    for (size_t i = 0; i < count; ++i) {
      T g = gradient[i];
      if (decays) g = Fma(decay, parameter.from[i], g);
      const T squares = Fma(g, g, sum.from[i]);
      sum.to[i] = squares;
      parameter.to[i] = parameter.from[i] + minus_step * g / (std::sqrt(squares) + epsilon);
    }
  };
  RunOver<T>(count, gradient, loop, parameter, sum);
}

template void Adagrad<float>(const OptimizerSettings&, double, uint64_t, size_t, const float*,
                             Array<float>, Array<float>);
template void Adagrad<double>(const OptimizerSettings&, double, uint64_t, size_t, const float*,
                              Array<double>, Array<double>);

}  // namespace parley::kernels
