#include "client/reduce/rank_sum.h"

#include <algorithm>
#include <cstring>

namespace parley {
namespace {

// Elements of a tile: all ranks' of it are added before the next, so that `out` is written where
// its own gradient has been read, and the sum stays in the cache.
constexpr size_t kTile = 1024;

// `count` is kTile, but for the last one: known at compile time the loops become vectors.
template <class Element>
[[gnu::always_inline]] inline void AddTile(absl::Span<const RankGradient> gradients, size_t begin,
                                           size_t count, float* sum) {
  for (size_t rank = 0; rank < gradients.size(); ++rank) {
    const Element* const from = reinterpret_cast<const Element*>(gradients[rank].data) + begin;
    const auto weight = static_cast<Element>(gradients[rank].weight);
    if (rank == 0 && weight == 1) {
      for (size_t i = 0; i < count; ++i) sum[i] = static_cast<float>(from[i]);
    } else if (rank == 0) {
      for (size_t i = 0; i < count; ++i) sum[i] = static_cast<float>(from[i] * weight);
    } else if (weight == 1) {
      for (size_t i = 0; i < count; ++i) sum[i] += static_cast<float>(from[i]);
    } else {
      for (size_t i = 0; i < count; ++i) sum[i] += static_cast<float>(from[i] * weight);
    }
  }
}

template <class Element>
void AddAs(absl::Span<const RankGradient> gradients, absl::Span<std::byte> out) {
  auto* const to = reinterpret_cast<Element*>(out.data());
  const size_t elements = out.size() / sizeof(Element);
  float sum[kTile];
  for (size_t begin = 0; begin < elements; begin += kTile) {
    const size_t count = std::min(kTile, elements - begin);
    if (count == kTile) {
      AddTile<Element>(gradients, begin, kTile, sum);
    } else {
      AddTile<Element>(gradients, begin, count, sum);
    }
    for (size_t i = 0; i < count; ++i) to[begin + i] = static_cast<Element>(sum[i]);
  }
}

}  // namespace

void AddRanks(DataType dtype, absl::Span<const RankGradient> gradients, absl::Span<std::byte> out) {
  if (gradients.empty()) return;
  if (dtype == F64) return AddAs<double>(gradients, out);
  AddAs<float>(gradients, out);
}

}  // namespace parley
