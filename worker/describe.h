#ifndef PARLEY_WORKER_DESCRIBE_H_
#define PARLEY_WORKER_DESCRIBE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/data/datasets.h"
#include "worker/models/layer_profile.h"
#include "worker/models/network.h"
#include "worker/models/pipeline_model.h"

namespace parley {

// What `parley-worker --describe` prints for `parley plan`: one line of JSON,
//   {"tensors": [{"name": "conv1.weight", "dtype": "F32", "shape": [50, 1, 5, 5], "buffer": false},
//   ...],
//    "training_samples": 60000, "test_samples": 10000}
// With pipelines: each tensor has "stages" too, and there are
//    "parts": [["conv1", "layer1.0"], ["layer1.1", "fc"]]
// with the layers of each part of the model; and where they were profiled
//    "costs": [{"forward_seconds": 0.01, "backward_seconds": 0.02, "output_bytes": 4096,
//               "kept_bytes": 65536}, ...], "input_bytes": 2048
// for each layer, and for what the first one is given, and
//    "hop": {"bytes": 4096, "seconds": 0.0002}
// where there is more than one part: what the largest tensors take that a part hands on. The codes
// of SpecsOf.
absl::StatusOr<std::string> Describe(const Network& network, const Datasets& data);
struct PipelineProfile {
  std::vector<LayerCost> layers;
  uint64_t input_bytes = 0;  // of the first one's
  uint64_t hop_bytes = 0;
  std::optional<absl::Duration> hop;
};
// Of the tensors that a part hands on to the next.
uint64_t LargestHop(const PipelineModel& model, const std::vector<LayerCost>& layers);
std::string Describe(const PipelineModel& model, const PipelineProfile& profile,
                     const Datasets& data);

}  // namespace parley

#endif  // PARLEY_WORKER_DESCRIBE_H_
