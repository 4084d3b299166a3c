#ifndef PARLEY_WORKER_MODELS_VGG_H_
#define PARLEY_WORKER_MODELS_VGG_H_

#include <vector>

#include "worker/models/layered_network.h"

namespace parley {

// VGG with 19 layers that have weights (Simonyan and Zisserman 2014, configuration E), with the
// shapes, names (features.0.weight, classifier.6.bias) and initial distributions of torchvision.
// `image`: channels, height, width of a float32 sample, at least 32x32. InvalidArgument for other
// samples, or no classes. Layers: each that has weights.
absl::StatusOr<std::vector<LayerPlan>> PlanVgg19(const ImageClasses& settings,
                                                 const SampleLayout& image);

}  // namespace parley

#endif  // PARLEY_WORKER_MODELS_VGG_H_
