#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "server/parameter_shard/optimizer_kernels.h"
#include "server/parameter_shard/optimizers.h"

namespace parley::kernels {
namespace {

// Scalars of one step, rounded to T.
template <class T>
struct Scalars {
  T minus_step;
  T correction2_root;
  T beta1;
  T weight1;
  T beta2;
  T weight2;
  T epsilon;
  T decay;
  T shrink;            // of the parameter, AdamW; 1 changes nothing
  bool coupled_decay;  // then `shrink` is 1
};

// An element of one of the sums after so many steps of zeros. Each of them ends with an addition of
// +0, which makes +0 of -0 if nothing else: once is enough.
template <uint32_t kSteps, class T>
PARLEY_KERNEL inline T Decayed(T sum, T beta) {
  for (uint32_t step = 0; step < kSteps; ++step) sum *= beta;
  if constexpr (kSteps != 0) sum += 0;
  return sum;
}

template <class T>
struct Sums {
  T mean;
  T square;
};

// What the next step makes of the sums that are owed some.
template <uint32_t kOwed, class T>
PARLEY_KERNEL inline Sums<T> NextSums(const Scalars<T>& s, T g, T mean, T square) {
  return {Fma(s.weight1, g, Decayed<kOwed>(mean, s.beta1) * s.beta1),
          Fma(s.weight2 * g, g, Decayed<kOwed>(square, s.beta2) * s.beta2)};
}

template <class T>
PARLEY_KERNEL inline T NextParameter(const Scalars<T>& s, T parameter, Sums<T> next) {
  const T denominator = std::sqrt(next.square) / s.correction2_root + s.epsilon;
  return parameter * s.shrink + s.minus_step * next.mean / denominator;
}

// That an array may be null clang-analyzer sees where RunOver looks, not which ones the loops have.
// NOLINTBEGIN(clang-analyzer-core.NullDereference)

// What varies inside is known when compiling, or the loop would not be vectorised.
template <bool kMaximum, class T>
void Loop(const Scalars<T> s, size_t count, const float* __restrict gradient, Array<T> parameter,
          Array<T> exp_avg, Array<T> exp_avg_sq, Array<T> max_exp_avg_sq) {
  const auto loop = [s](size_t count, const float* gradient, Array<T> parameter, Array<T> exp_avg,
                        Array<T> exp_avg_sq, Array<T> max_exp_avg_sq) PARLEY_KERNEL {
    PARLEY_APART
    for (size_t i = 0; i < count; ++i) {
      T g = gradient[i];
      if (s.coupled_decay) g = Fma(s.decay, parameter.from[i], g);
      Sums<T> next = NextSums<0, T>(s, g, exp_avg.from[i], exp_avg_sq.from[i]);
      exp_avg.to[i] = next.mean;
      exp_avg_sq.to[i] = next.square;
      if constexpr (kMaximum) {
        // As torch.maximum, a NaN on either side stays.
        const T square = next.square;
        const T largest = max_exp_avg_sq.from[i];
        next.square = square >= largest || square != square ? square : largest;
        max_exp_avg_sq.to[i] = next.square;
      }
      parameter.to[i] = NextParameter(s, parameter.from[i], next);
    }
  };
  RunOver<T>(count, gradient, loop, parameter, exp_avg, exp_avg_sq, max_exp_avg_sq);
}

// As Loop, of state that is owed steps.
template <uint32_t kOwed, class T>
void OwedLoop(const Scalars<T> s, size_t count, const float* __restrict gradient,
              Array<T> parameter, Array<T> exp_avg, Array<T> exp_avg_sq) {
  const auto loop = [s](size_t count, const float* gradient, Array<T> parameter, Array<T> exp_avg,
                        Array<T> exp_avg_sq) PARLEY_KERNEL {
    PARLEY_APART
    for (size_t i = 0; i < count; ++i) {
      const Sums<T> next = NextSums<kOwed, T>(s, gradient[i], exp_avg.from[i], exp_avg_sq.from[i]);
      exp_avg.to[i] = next.mean;
      exp_avg_sq.to[i] = next.square;
      parameter.to[i] = NextParameter(s, parameter.from[i], next);
    }
  };
  RunOver<T>(count, gradient, loop, parameter, exp_avg, exp_avg_sq);
}

// The same, and what becomes of the state is not written: it is owed this step, too.
template <uint32_t kOwed, class T>
void OwingLoop(const Scalars<T> s, size_t count, const float* __restrict gradient,
               Array<T> parameter, Array<T> exp_avg, Array<T> exp_avg_sq) {
  const auto loop = [s, gradient, means = exp_avg.from, squares = exp_avg_sq.from](
                        size_t count, const float* line, Array<T> parameter) PARLEY_KERNEL {
    const T* const mean = means + (line - gradient);
    const T* const square = squares + (line - gradient);
    AskAhead(mean);
    AskAhead(square);
    PARLEY_APART
    for (size_t i = 0; i < count; ++i) {
      const Sums<T> next = NextSums<kOwed, T>(s, line[i], mean[i], square[i]);
      parameter.to[i] = NextParameter(s, parameter.from[i], next);
    }
  };
  RunOver<T>(count, gradient, loop, parameter);
}

// NOLINTEND(clang-analyzer-core.NullDereference)

// Those of 0 to kMostOwed owed steps: how many is known when compiling, or it would not be
// vectorised.
template <class T, uint32_t... kOwed>
auto OwedLoopOf(uint32_t owed, bool writes, std::integer_sequence<uint32_t, kOwed...>) {
  constexpr std::array kOwedLoops = {OwedLoop<kOwed, T>...};
  constexpr std::array kOwingLoops = {OwingLoop<kOwed, T>...};
  return writes ? kOwedLoops[owed] : kOwingLoops[owed];
}

template <uint32_t kOwed, class T>
void SettleLoop(const Scalars<T> s, size_t count, Array<T> exp_avg, Array<T> exp_avg_sq) {
  Run([=]() PARLEY_KERNEL {
    PARLEY_APART
    for (size_t i = 0; i < count; ++i) {
      exp_avg.to[i] = Decayed<kOwed>(exp_avg.from[i], s.beta1);
      exp_avg_sq.to[i] = Decayed<kOwed>(exp_avg_sq.from[i], s.beta2);
    }
  });
}

template <class T, uint32_t... kOwed>
auto SettleLoopOf(uint32_t owed, std::integer_sequence<uint32_t, kOwed...>) {
  constexpr std::array kLoops = {SettleLoop<kOwed, T>...};
  return kLoops[owed];
}

// Of the two sums.
template <class T>
Scalars<T> SumScalars(const OptimizerSettings& settings) {
  Scalars<T> s = {};
  s.beta1 = static_cast<T>(settings.beta1);
  s.weight1 = static_cast<T>(1 - settings.beta1);
  s.beta2 = static_cast<T>(settings.beta2);
  s.weight2 = static_cast<T>(1 - settings.beta2);
  return s;
}

}  // namespace

template <class T>
void Adam(const OptimizerSettings& settings, double rate, uint64_t step_count, uint32_t owed,
          size_t count, const float* __restrict gradient, Array<T> parameter, Array<T> exp_avg,
          Array<T> exp_avg_sq, Array<T> max_exp_avg_sq) {
  const double steps = static_cast<double>(step_count);
  const double correction1 = 1 - std::pow(settings.beta1, steps);
  const double correction2 = 1 - std::pow(settings.beta2, steps);
  const bool decoupled = settings.kind == OptimizerSettings::Kind::kAdamW;
  Scalars<T> s = SumScalars<T>(settings);
  s.minus_step = static_cast<T>(-(rate / correction1));
  s.correction2_root = static_cast<T>(std::sqrt(correction2));
  s.epsilon = static_cast<T>(settings.epsilon);
  s.decay = static_cast<T>(settings.weight_decay);
  s.shrink = static_cast<T>(decoupled ? 1 - rate * settings.weight_decay : 1);
  s.coupled_decay = !decoupled && settings.weight_decay != 0;

  if (owed != 0 || exp_avg.to == nullptr) {
    constexpr std::make_integer_sequence<uint32_t, kMostOwed + 1> kOwed;
    const auto loop = OwedLoopOf<T>(owed, exp_avg.to != nullptr, kOwed);
    return loop(s, count, gradient, parameter, exp_avg, exp_avg_sq);
  }
  const auto loop = max_exp_avg_sq.from != nullptr ? Loop<true, T> : Loop<false, T>;
  loop(s, count, gradient, parameter, exp_avg, exp_avg_sq, max_exp_avg_sq);
}

template <class T>
void AdamOwed(const OptimizerSettings& settings, uint32_t owed, size_t count, Array<T> exp_avg,
              Array<T> exp_avg_sq) {
  constexpr std::make_integer_sequence<uint32_t, kMostOwed + 1> kOwed;
  SettleLoopOf<T>(owed, kOwed)(SumScalars<T>(settings), count, exp_avg, exp_avg_sq);
}

template void Adam<float>(const OptimizerSettings&, double, uint64_t, uint32_t, size_t,
                          const float*, Array<float>, Array<float>, Array<float>, Array<float>);
template void Adam<double>(const OptimizerSettings&, double, uint64_t, uint32_t, size_t,
                           const float*, Array<double>, Array<double>, Array<double>,
                           Array<double>);
template void AdamOwed<float>(const OptimizerSettings&, uint32_t, size_t, Array<float>,
                              Array<float>);
template void AdamOwed<double>(const OptimizerSettings&, uint32_t, size_t, Array<double>,
                               Array<double>);

}  // namespace parley::kernels
