#ifndef PARLEY_WORKER_MODELS_SIMPLE_CNN_H_
#define PARLEY_WORKER_MODELS_SIMPLE_CNN_H_

#include <vector>

#include "worker/models/layered_network.h"

namespace parley {

// The network of LRZ's course: two convolutions of 5x5 (50 and 75 channels), each ReLU(max-pool 2),
// a linear layer of 50 with ReLU, and a linear layer to the classes. `image`: channels, height,
// width of a float32 sample; at least 16x16. Parameters have the names that the same module has in
// PyTorch (conv1.weight, ...) and its default distributions, each drawn from a generator seeded
// from (seed, its name). Layers: "conv1", "conv2", "fc1", "fc2".
absl::StatusOr<std::vector<LayerPlan>> PlanSimpleCnn(const SimpleCnn& settings,
                                                     const SampleLayout& image);

}  // namespace parley

#endif  // PARLEY_WORKER_MODELS_SIMPLE_CNN_H_
