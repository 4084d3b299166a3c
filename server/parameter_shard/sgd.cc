#include "server/parameter_shard/optimizer_kernels.h"

namespace parley::kernels {

template <class T>
void Sgd(const OptimizerSettings& settings, double rate, uint64_t step_count, size_t count,
         const float* __restrict gradient, Array<T> parameter, Array<T> momentum_buffer) {
  const T step = static_cast<T>(rate);
  const T decay = static_cast<T>(settings.weight_decay);
  const T momentum = static_cast<T>(settings.momentum);
  const T fresh = static_cast<T>(1 - settings.dampening);
  const bool decays = settings.weight_decay != 0;

  if (settings.momentum == 0) {
    const auto loop = [=](size_t count, const float* gradient, Array<T> parameter) PARLEY_KERNEL {
      PARLEY_APART
      for (size_t i = 0; i < count; ++i) {
        T g = gradient[i];
        if (decays) g = Fma(decay, parameter.from[i], g);
        parameter.to[i] = Fma(-step, g, parameter.from[i]);
      }
    };
    return RunOver<T>(count, gradient, loop, parameter);
  }
  // PyTorch starts the buffer with the first gradient itself, without dampening.
  const bool first = step_count == 1;
  const bool nesterov = settings.nesterov;
  const auto loop = [=](size_t count, const float* gradient, Array<T> parameter,
                        Array<T> momentum_buffer) PARLEY_KERNEL {
    PARLEY_APART
    for (size_t i = 0; i < count; ++i) {
      T g = gradient[i];
      if (decays) g = Fma(decay, parameter.from[i], g);
      const T buffer = first ? g : Fma(fresh, g, momentum_buffer.from[i] * momentum);
      momentum_buffer.to[i] = buffer;
      g = nesterov ? Fma(momentum, buffer, g) : buffer;
      parameter.to[i] = Fma(-step, g, parameter.from[i]);
    }
  };
  RunOver<T>(count, gradient, loop, parameter, momentum_buffer);
}

template void Sgd<float>(const OptimizerSettings&, double, uint64_t, size_t, const float*,
                         Array<float>, Array<float>);
template void Sgd<double>(const OptimizerSettings&, double, uint64_t, size_t, const float*,
                          Array<double>, Array<double>);

}  // namespace parley::kernels
