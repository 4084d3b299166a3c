#ifndef PARLEY_WORKER_MODELS_LAYER_PROFILE_H_
#define PARLEY_WORKER_MODELS_LAYER_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/data/data_source.h"
#include "worker/models/layered_network.h"

namespace parley {

// What a microbatch costs in one layer, on this machine.
struct LayerCost {
  std::string name;
  absl::Duration forward, backward;
  uint64_t output_bytes = 0;  // that the next layer gets, skip connections included
  // What it allocates and keeps for its backward, outputs included; without what it is given.
  uint64_t kept_bytes = 0;
};

// Runs each layer forward and backward on a microbatch of so many samples, training, again and
// again for its share of `budget`, three times at least: the medians. One layer after the other has
// memory. Samples are zeros: what they are changes no time. With LibTorch's threads as they are
// set. InvalidArgument for what LibTorch throws.
absl::StatusOr<std::vector<LayerCost>> ProfileLayers(const std::vector<LayerPlan>& layers,
                                                     const SampleLayout& x, uint64_t samples,
                                                     absl::Duration budget);

}  // namespace parley

#endif  // PARLEY_WORKER_MODELS_LAYER_PROFILE_H_
