#include <cmath>

#include "server/parameter_shard/optimizer_kernels.h"

namespace parley::kernels {
namespace {

// Scalars of one step, rounded to T.
template <class T>
struct Scalars {
  T step;
  T alpha;
  T fresh;
  T epsilon;
  T decay;
  T momentum;
  bool decays;
};

// What varies inside is known when compiling, or the loop would not be vectorised.
template <bool kCentered, bool kMomentum, class T>
void Loop(const Scalars<T> s, size_t count, const float* __restrict gradient, Array<T> parameter,
          Array<T> square_avg, Array<T> grad_avg, Array<T> momentum_buffer) {
  const auto loop = [s](size_t count, const float* gradient, Array<T> parameter,
                        Array<T> square_avg, Array<T> grad_avg, Array<T> momentum_buffer)
                        PARLEY_KERNEL {
                          PARLEY_APART
                          for (size_t i = 0; i < count; ++i) {
                            const T p = parameter.from[i];
                            T g = gradient[i];
                            if (s.decays) g = Fma(s.decay, p, g);
                            T square = Fma(s.fresh * g, g, square_avg.from[i] * s.alpha);
                            square_avg.to[i] = square;
                            if constexpr (kCentered) {
                              const T mean = Fma(s.fresh, g, grad_avg.from[i] * s.alpha);
                              grad_avg.to[i] = mean;
                              square = Fma(-mean, mean, square);
                            }
                            const T root = std::sqrt(square) + s.epsilon;
                            if constexpr (kMomentum) {
                              const T buffer = momentum_buffer.from[i] * s.momentum + g / root;
                              momentum_buffer.to[i] = buffer;
                              parameter.to[i] = Fma(-s.step, buffer, p);
                            } else {
                              parameter.to[i] = p + -s.step * g / root;
                            }
                          }
                        };
  RunOver<T>(count, gradient, loop, parameter, square_avg, grad_avg, momentum_buffer);
}

}  // namespace

template <class T>
void RmsProp(const OptimizerSettings& settings, double rate, size_t count,
             const float* __restrict gradient, Array<T> parameter, Array<T> square_avg,
             Array<T> grad_avg, Array<T> momentum_buffer) {
  Scalars<T> s;
  s.step = static_cast<T>(rate);
  s.alpha = static_cast<T>(settings.alpha);
  s.fresh = static_cast<T>(1 - settings.alpha);
  s.epsilon = static_cast<T>(settings.epsilon);
  s.decay = static_cast<T>(settings.weight_decay);
  s.momentum = static_cast<T>(settings.momentum);
  s.decays = settings.weight_decay != 0;

  const bool momentum = momentum_buffer.from != nullptr;
  const auto loop = grad_avg.from != nullptr
                        ? (momentum ? Loop<true, true, T> : Loop<true, false, T>)
                        : (momentum ? Loop<false, true, T> : Loop<false, false, T>);
  loop(s, count, gradient, parameter, square_avg, grad_avg, momentum_buffer);
}

template void RmsProp<float>(const OptimizerSettings&, double, size_t, const float*, Array<float>,
                             Array<float>, Array<float>, Array<float>);
template void RmsProp<double>(const OptimizerSettings&, double, size_t, const float*, Array<double>,
                              Array<double>, Array<double>, Array<double>);

}  // namespace parley::kernels
