#ifndef PARLEY_WORKER_MODELS_SLEEPING_H_
#define PARLEY_WORKER_MODELS_SLEEPING_H_

#include <vector>

#include "absl/status/statusor.h"
#include "worker/models/layered_network.h"

namespace parley {

// Layers that sleep where others compute, to measure what a pipeline's schedule and messages cost
// without the noise of cores that are shared: each forward, gradient of the input and gradient of
// the weight takes its time, the last of these when deferred (DeferredWeights) apart. A layer
// multiplies its input by a number that it trains. settings: checked (common/job). x: float32, else
// InvalidArgument; the last layer's output is [samples, features]. Layers: "sleeping.0", ...
absl::StatusOr<std::vector<LayerPlan>> PlanSleeping(const Sleeping& settings,
                                                    const SampleLayout& x);

}  // namespace parley

#endif  // PARLEY_WORKER_MODELS_SLEEPING_H_
