#ifndef PARLEY_SERVER_PARAMETER_SHARD_OPTIMIZER_KERNELS_H_
#define PARLEY_SERVER_PARAMETER_SHARD_OPTIMIZER_KERNELS_H_

// The loops behind ApplyUpdate (optimizers.h), one file for each optimizer; only optimizers.cc
// calls them. Lengths have been checked; arrays do not overlap. T: float or double.

#include <cstddef>
#include <cstdint>

#include "common/job/optimizer_settings.h"

namespace parley::kernels {

template <class T>
void Sgd(const OptimizerSettings& settings, double rate, uint64_t step_count, size_t count,
         const float* __restrict gradient, T* __restrict parameter, T* __restrict momentum_buffer);

// Adam and AdamW. max_exp_avg_sq: null unless amsgrad.
template <class T>
void Adam(const OptimizerSettings& settings, double rate, uint64_t step_count, size_t count,
          const float* __restrict gradient, T* __restrict parameter, T* __restrict exp_avg,
          T* __restrict exp_avg_sq, T* __restrict max_exp_avg_sq);

template <class T>
void Adagrad(const OptimizerSettings& settings, double rate, uint64_t step_count, size_t count,
             const float* __restrict gradient, T* __restrict parameter, T* __restrict sum);

// momentum_buffer: null without momentum; grad_avg: null unless centered.
template <class T>
void RmsProp(const OptimizerSettings& settings, double rate, size_t count,
             const float* __restrict gradient, T* __restrict parameter, T* __restrict square_avg,
             T* __restrict grad_avg, T* __restrict momentum_buffer);

// torch.lerp: the form depends on the weight, so that lerp(a, b, 1) is b. kSmall: weight < 0.5.
template <bool kSmall, class T>
inline T Lerp(T from, T to, T weight) {
  return kSmall ? from + weight * (to - from) : to - (to - from) * (T(1) - weight);
}

}  // namespace parley::kernels

#endif  // PARLEY_SERVER_PARAMETER_SHARD_OPTIMIZER_KERNELS_H_
