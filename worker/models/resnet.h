#ifndef PARLEY_WORKER_MODELS_RESNET_H_
#define PARLEY_WORKER_MODELS_RESNET_H_

#include <vector>

#include "worker/models/layered_network.h"

namespace parley {

// Residual networks (He et al. 2015) of depth 18, 34 or 50, with the shapes, names (layer1.0.conv1.
// weight) and initial distributions of torchvision: a stride of 2 lies in the 3x3 convolution.
// Layers: "conv1" (to the pooling), each block ("layer1.0"), "fc" (from the averaging). `image`:
// channels, height, width of a float32 sample. InvalidArgument for other samples, another depth, no
// classes.
absl::StatusOr<std::vector<LayerPlan>> PlanResNet(const ResNet& settings,
                                                  const SampleLayout& image);

}  // namespace parley

#endif  // PARLEY_WORKER_MODELS_RESNET_H_
