#include "server/pipeline_stage/schedule/partition.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace parley {
namespace {

// A cut of the first layers into some parts: how slow it is, what it sends, where its last part
// begins.
struct Best {
  absl::Duration slowest = absl::InfiniteDuration();
  uint64_t sent_bytes = 0;
  uint32_t last_begin = 0;

  bool operator<(const Best& other) const {
    return std::tie(slowest, sent_bytes) < std::tie(other.slowest, other.sent_bytes);
  }
};

}  // namespace

absl::StatusOr<Partition> Balance(const PartitionCosts& costs) {
  const size_t layers = costs.layers.size(), parts = costs.places.size();
  if (parts == 0 || layers < parts) {
    return absl::InvalidArgumentError(
        absl::StrCat(layers, " layers cannot be cut into ", parts, " parts"));
  }
  for (const PartPlace& place : costs.places) {
    if (!(place.speed > 0) || !std::isfinite(place.speed)) {
      return absl::InvalidArgumentError(absl::StrCat("a speed of ", place.speed));
    }
  }
  // Sums over the layers before each one.
  std::vector<absl::Duration> time(layers + 1);
  std::vector<uint64_t> activations(layers + 1), parameters(layers + 1);
  for (size_t i = 0; i < layers; ++i) {
    const LayerProfile& layer = costs.layers[i];
    time[i + 1] = time[i] + layer.forward + layer.backward;
    activations[i + 1] = activations[i] + layer.activation_bytes;
    parameters[i + 1] = parameters[i] + layer.parameter_bytes;
  }
  const auto link = [&](size_t first_behind) {
    if (first_behind == 0 || costs.link_bytes_per_second <= 0) return absl::ZeroDuration();
    return absl::Seconds(static_cast<double>(costs.layers[first_behind - 1].output_bytes) /
                         costs.link_bytes_per_second);
  };
  const auto fits = [&](const PartPlace& place, size_t begin, size_t end) {
    if (place.memory_bytes == 0) return true;
    const uint64_t bytes = parameters[end] - parameters[begin] +
                           (activations[end] - activations[begin]) * place.live_microbatches;
    return bytes <= place.memory_bytes;
  };
  // best[p][n]: of the first n layers in p parts.
  std::vector<std::vector<Best>> best(parts + 1, std::vector<Best>(layers + 1));
  best[0][0].slowest = absl::ZeroDuration();
  for (size_t part = 0; part < parts; ++part) {
    const PartPlace& place = costs.places[part];
    for (size_t end = part + 1; end + (parts - 1 - part) <= layers; ++end) {
      for (size_t begin = part; begin < end; ++begin) {
        const Best& before = best[part][begin];
        if (before.slowest == absl::InfiniteDuration() || !fits(place, begin, end)) continue;
        Best one;
        one.slowest =
            std::max({before.slowest, (time[end] - time[begin]) / place.speed, link(begin)});
        one.sent_bytes =
            before.sent_bytes + (begin == 0 ? 0 : costs.layers[begin - 1].output_bytes);
        one.last_begin = static_cast<uint32_t>(begin);
        best[part + 1][end] = std::min(best[part + 1][end], one);
      }
    }
  }
  if (best[parts][layers].slowest == absl::InfiniteDuration()) {
    return absl::ResourceExhaustedError(absl::StrCat("no cut of ", layers, " layers into ", parts,
                                                     " parts fits into the memory that they have"));
  }
  Partition partition;
  partition.slowest = best[parts][layers].slowest;
  partition.first_layers.resize(parts);
  size_t end = layers;
  for (size_t part = parts; part > 0; --part) {
    end = best[part][end].last_begin;
    partition.first_layers[part - 1] = static_cast<uint32_t>(end);
  }
  return partition;
}

}  // namespace parley
