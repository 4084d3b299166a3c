#include "server/parameter_shard/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace parley {

double SumOfSquares(absl::Span<const float> block) {
  // Eight running sums, so that the order is fixed and the loop vectorised nevertheless.
  constexpr size_t kLanes = 8;
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= block.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = block[i + lane];
      lanes[lane] += value * value;
    }
  }
  double sum = 0;
  for (double lane : lanes) sum += lane;
  for (; i < block.size(); ++i) {
    const double value = block[i];
    sum += value * value;
  }
  return sum;
}

bool AllFinite(absl::Span<const float> values) {
  // An infinity or a NaN has all bits of the exponent set.
  uint32_t bad = 0;
  for (const float value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    bad |= (bits & 0x7f800000u) == 0x7f800000u;
  }
  return bad == 0;
}

double GlobalNorm(const ClusterView& view, std::vector<SliceNorms> norms) {
  const auto slice = [&view](const SliceNorms& of) -> const Slice& {
    return view.slices(static_cast<int>(of.slice()));
  };
  std::sort(norms.begin(), norms.end(), [&](const SliceNorms& a, const SliceNorms& b) {
    const std::string& name_a = view.tensors(static_cast<int>(slice(a).tensor())).name();
    const std::string& name_b = view.tensors(static_cast<int>(slice(b).tensor())).name();
    return name_a != name_b ? name_a < name_b : slice(a).begin() < slice(b).begin();
  });
  double sum = 0;
  for (const SliceNorms& of : norms) {
    for (const double block : of.blocks()) sum += block;
  }
  return std::sqrt(sum);
}

double ClipScale(double norm, double max_norm) {
  const double scale = max_norm / (norm + 1e-6);
  return scale > 1 ? 1 : scale;
}

}  // namespace parley
