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

// a * b + c with one rounding, as LibTorch's kernels compute add(alpha), addcmul and their like.
template <class T>
[[gnu::always_inline]] inline T Fma(T a, T b, T c) {
  if constexpr (sizeof(T) == sizeof(float)) return __builtin_fmaf(a, b, c);
  return __builtin_fma(a, b, c);
}

// Runs `loop`, a lambda marked PARLEY_KERNEL, compiled for the instruction set of this machine: the
// compiler makes the vectors, for float and double, from one source. The bits are the same on every
// one: where there is no instruction for Fma, libm computes it, slowly. PARLEY_BASELINE_KERNELS,
// for the test of that: as on a machine without AVX2.
#define PARLEY_KERNEL __attribute__((always_inline))
// Before the loop in it: its arrays do not overlap, which a lambda does not know of what it
// captures. Without it GCC gives up where there are many (Adam), and takes one element at a time.
// clang, with which we check only, would call it an error that the baseline has no vectors.
#if defined(__clang__)
#define PARLEY_APART
#else
#define PARLEY_APART _Pragma("GCC ivdep")
#endif
#if defined(__x86_64__) && !defined(PARLEY_BASELINE_KERNELS)
#define PARLEY_KERNELS_WITH_AVX2 1
#else
#define PARLEY_KERNELS_WITH_AVX2 0
#endif

#if PARLEY_KERNELS_WITH_AVX2
template <class Loop>
__attribute__((target("avx2,fma"))) void RunWithAvx2(const Loop loop) {
  loop();
}
#endif

template <class Loop>
void Run(const Loop loop) {
#if PARLEY_KERNELS_WITH_AVX2
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return RunWithAvx2(loop);
#endif
  loop();
}

}  // namespace parley::kernels

#endif  // PARLEY_SERVER_PARAMETER_SHARD_OPTIMIZER_KERNELS_H_
