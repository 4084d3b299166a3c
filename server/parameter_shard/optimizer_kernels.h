#ifndef PARLEY_SERVER_PARAMETER_SHARD_OPTIMIZER_KERNELS_H_
#define PARLEY_SERVER_PARAMETER_SHARD_OPTIMIZER_KERNELS_H_

// The loops behind ApplyUpdate (optimizers.h), one file for each optimizer; only optimizers.cc
// calls them. Lengths have been checked; arrays do not overlap, but for an array's `from` and `to`,
// which may be the same. T: float or double.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

// Not where a sanitizer looks, which does not see what is written so (GCC's; it is what we run).
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
#define PARLEY_STREAMS 1
#include <emmintrin.h>
#else
#define PARLEY_STREAMS 0
#endif

#include "common/job/optimizer_settings.h"

namespace parley::kernels {

// Of a parameter or of state: what is read, and where what becomes of it is written. Null where the
// optimizer has none.
template <class T>
struct Array {
  const T* from = nullptr;
  T* to = nullptr;
};

template <class T>
void Sgd(const OptimizerSettings& settings, double rate, uint64_t step_count, size_t count,
         const float* __restrict gradient, Array<T> parameter, Array<T> momentum_buffer);

// Adam and AdamW. owed: steps of zeros that the state has not had, kMostOwed (optimizers.h) at
// most; where both sums' `to` is null, they are not written. max_exp_avg_sq: null unless amsgrad;
// with it, and with decay that is added to the gradient, nothing is owed and all written.
template <class T>
void Adam(const OptimizerSettings& settings, double rate, uint64_t step_count, uint32_t owed,
          size_t count, const float* __restrict gradient, Array<T> parameter, Array<T> exp_avg,
          Array<T> exp_avg_sq, Array<T> max_exp_avg_sq);
// What these steps make of the state.
template <class T>
void AdamOwed(const OptimizerSettings& settings, uint32_t owed, size_t count, Array<T> exp_avg,
              Array<T> exp_avg_sq);

template <class T>
void Adagrad(const OptimizerSettings& settings, double rate, uint64_t step_count, size_t count,
             const float* __restrict gradient, Array<T> parameter, Array<T> sum);

// momentum_buffer: null without momentum; grad_avg: null unless centered.
template <class T>
void RmsProp(const OptimizerSettings& settings, double rate, size_t count,
             const float* __restrict gradient, Array<T> parameter, Array<T> square_avg,
             Array<T> grad_avg, Array<T> momentum_buffer);

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

// RunOver takes a line of the caches of each array at a time. With four at a time, written past the
// caches, Adam's step takes 5 to 10 % longer on an Emerald Rapids: a core has room for few lines
// that are on their way to memory.
template <class T>
inline constexpr size_t kLine = 64 / sizeof(T);

// Before it reads a line it asks for the one so many bytes further on, which may lie behind the
// array's end: the processor that we measured on reads ahead by itself, but waits at the beginning
// of each page, and each array has another one after 4 KiB.
inline constexpr size_t kAheadBytes = 1024;
template <class T>
PARLEY_KERNEL inline void AskAhead(const T* line) {
  if (line == nullptr) return;
  __builtin_prefetch(
      reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(line) + kAheadBytes));
}

template <class T>
PARLEY_KERNEL inline Array<T> At(Array<T> array, size_t begin) {
  return array.from == nullptr ? array : Array<T>{array.from + begin, array.to + begin};
}

// Whether all that is written goes to memory of its own that can be written past the caches.
template <class T>
PARLEY_KERNEL inline bool Streams(Array<T> array) {
  return array.from == nullptr ||
         (array.from != array.to && reinterpret_cast<uintptr_t>(array.to) % 16 == 0);
}

template <class T>
PARLEY_KERNEL inline void Stream(const T* written, T* to) {
  if (to == nullptr) return;
#if PARLEY_STREAMS
  const auto* const from = reinterpret_cast<const __m128i*>(written);
  for (size_t i = 0; i < kLine<T> * sizeof(T) / sizeof(__m128i); ++i) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, _mm_load_si128(from + i));
  }
#else
  std::memcpy(to, written, kLine<T> * sizeof(T));
#endif
}

template <class T, class Loop, size_t... kIndex>
PARLEY_KERNEL inline void Pass(size_t count, const float* gradient, const Loop& loop,
                               const Array<T>* arrays, std::index_sequence<kIndex...>) {
  size_t done = 0;
  if ((Streams(arrays[kIndex]) && ...)) {
    alignas(64) T written[sizeof...(kIndex)][kLine<T>] = {};
    for (; done + kLine<T> <= count; done += kLine<T>) {
      AskAhead(gradient + done);
      (AskAhead(At(arrays[kIndex], done).from), ...);
      loop(kLine<T>, gradient + done, Array<T>{At(arrays[kIndex], done).from, written[kIndex]}...);
      (Stream(written[kIndex], At(arrays[kIndex], done).to), ...);
    }
#if PARLEY_STREAMS
    _mm_sfence();
#endif
  } else {
    for (; done + kLine<T> <= count; done += kLine<T>) {
      AskAhead(gradient + done);
      (AskAhead(At(arrays[kIndex], done).from), ...);
      loop(kLine<T>, gradient + done, At(arrays[kIndex], done)...);
    }
  }
  if (done < count) loop(count - done, gradient + done, At(arrays[kIndex], done)...);
}

// Runs loop(count, gradient, arrays...), a lambda marked PARLEY_KERNEL that takes one element after
// the other, as Run does. What it writes apart from what it reads goes past the caches: nobody
// reads it soon, and else it would be loaded first, which takes as long again.
template <class T, class Loop, class... Arrays>
void RunOver(size_t count, const float* gradient, const Loop loop, Array<T> first,
             Arrays... others) {
  const std::array<Array<T>, 1 + sizeof...(Arrays)> arrays = {first, others...};
  Run([=]() PARLEY_KERNEL {
    Pass<T>(count, gradient, loop, arrays.data(),
            std::make_index_sequence<1 + sizeof...(Arrays)>());
  });
}

}  // namespace parley::kernels

#endif  // PARLEY_SERVER_PARAMETER_SHARD_OPTIMIZER_KERNELS_H_
