#ifndef PARLEY_WORKER_MODELS_XRESNET_H_
#define PARLEY_WORKER_MODELS_XRESNET_H_

#include <vector>

#include "worker/models/layered_network.h"

namespace parley {

// fastai's xresnet50: ResNet-50 with the changes of "Bag of Tricks" (He et al. 2018): a stem of
// three 3x3 convolutions, averaging in place of a strided 1x1 convolution around a block, and
// blocks that begin as the identity. Shapes, names (0.0.weight, 4.0.convpath.0.0.weight) and
// initial distributions are fastai's. `image`: channels, height, width of a float32 sample.
// InvalidArgument for other samples, or no classes. Layers: the stem's convolutions ("0"), blocks
// ("4.0") and the linear layer ("11").
absl::StatusOr<std::vector<LayerPlan>> PlanXResNet50(const ImageClasses& settings,
                                                     const SampleLayout& image);

}  // namespace parley

#endif  // PARLEY_WORKER_MODELS_XRESNET_H_
