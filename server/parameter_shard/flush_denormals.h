#ifndef PARLEY_SERVER_PARAMETER_SHARD_FLUSH_DENORMALS_H_
#define PARLEY_SERVER_PARAMETER_SHARD_FLUSH_DENORMALS_H_

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace parley {

// While it lives, what this thread computes and reads that is closer to 0 than a normal number
// (1.2e-38 for float) is 0, as after torch.set_flush_denormal(True). Where the gradient of a row
// stays away, as that of a rare word, Adam's mean is that small after 800 steps, and from then on
// for good: it is rounded to the smallest number there is, not to 0. Many processors take a hundred
// cycles and more for each product of such numbers. Nothing where the processor is another one.
class FlushDenormals {
 public:
#if defined(__SSE2__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlush | kReadAsZero); }
  ~FlushDenormals() { _mm_setcsr(before_); }
#else
  FlushDenormals() = default;
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__SSE2__)
  static constexpr unsigned kFlush = 0x8000;
  static constexpr unsigned kReadAsZero = 0x0040;
  const unsigned before_;
#endif
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_FLUSH_DENORMALS_H_
