#include "server/parameter_shard/sum_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "server/parameter_shard/optimizer_kernels.h"

namespace parley {
namespace {

// Of one pass: as many streams as a core reads ahead of without effort.
constexpr size_t kAtOnce = 4;

// -0 is what changes no bit of anything added to it.
constexpr float kNothing = -0.0F;

template <size_t N>
void Pass(const float* const* addends, bool fresh, float* out, size_t count) {
  const float* const a = addends[0];
  const float* const b = addends[N > 1 ? 1 : 0];
  const float* const c = addends[N > 2 ? 2 : 0];
  const float* const d = addends[N > 3 ? 3 : 0];
  kernels::Run([=]() PARLEY_KERNEL {
    PARLEY_APART
    for (size_t i = 0; i < count; ++i) {
      float sum = (fresh ? kNothing : out[i]) + a[i];
      if constexpr (N > 1) sum += b[i];
      if constexpr (N > 2) sum += c[i];
      if constexpr (N > 3) sum += d[i];
      out[i] = sum;
    }
  });
}

// Whether 1 / divisor is exact, and so a product with it the same as the quotient.
bool HasExactInverse(float divisor) {
  int exponent = 0;
  return std::frexp(divisor, &exponent) == 0.5F && exponent > -100 && exponent < 100;
}

}  // namespace

void AddInOrder(absl::Span<const float* const> addends, bool fresh, absl::Span<float> out) {
  if (addends.empty() && fresh) std::fill(out.begin(), out.end(), kNothing);
  while (!addends.empty()) {
    const size_t count = std::min(kAtOnce, addends.size());
    switch (count) {
      case 1:
        Pass<1>(addends.data(), fresh, out.data(), out.size());
        break;
      case 2:
        Pass<2>(addends.data(), fresh, out.data(), out.size());
        break;
      case 3:
        Pass<3>(addends.data(), fresh, out.data(), out.size());
        break;
      default:
        Pass<4>(addends.data(), fresh, out.data(), out.size());
    }
    addends.remove_prefix(count);
    fresh = false;
  }
}

void DivideBy(float divisor, const float* in, absl::Span<float> out) {
  float* const to = out.data();
  const size_t count = out.size();
  if (HasExactInverse(divisor)) {
    const float inverse = 1 / divisor;
    return kernels::Run([=]() PARLEY_KERNEL {
      PARLEY_APART
      for (size_t i = 0; i < count; ++i) to[i] = in[i] * inverse;
    });
  }
  kernels::Run([=]() PARLEY_KERNEL {
    PARLEY_APART
    for (size_t i = 0; i < count; ++i) to[i] = in[i] / divisor;
  });
}

}  // namespace parley
