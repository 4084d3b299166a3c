#ifndef PARLEY_CLIENT_PARLEY_MODEL_DESCRIPTION_H_
#define PARLEY_CLIENT_PARLEY_MODEL_DESCRIPTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/types.pb.h"

namespace parley {

// One microbatch in one layer, as a worker has measured it.
struct MeasuredLayer {
  double forward_seconds = 0;
  double backward_seconds = 0;
  uint64_t output_bytes = 0;
  uint64_t kept_bytes = 0;  // for its backward, outputs included
};

// Between two stages: tensors of so many bytes, until the thread that waits has them.
struct MeasuredHop {
  uint64_t bytes = 0;
  double seconds = 0;
};

// What a worker says of its job before it takes part (`parley-worker --describe`).
struct ModelDescription {
  std::vector<TensorSpec> tensors;
  uint64_t training_samples = 0;
  uint64_t test_samples = 0;
  // The names of the layers of each part of the model; of jobs with pipelines.
  std::vector<std::vector<std::string>> parts = {};
  // Of each layer, in order; empty: nothing was measured.
  std::vector<MeasuredLayer> costs = {};
  uint64_t input_bytes = 0;  // with costs: what a microbatch's first layer is given
  std::optional<MeasuredHop> hop = {};
  // What a stage may have of activations, in bytes, as who plans says; 0: not limited.
  uint64_t stage_memory = 0;
};

// Of one JSON object: {"tensors": [{"name", "dtype", "shape", "buffer"}], "training_samples",
// "test_samples"}. With pipelines each tensor has "stages", and there are "parts": [["layer"]], and
// perhaps "costs": [{"forward_seconds", "backward_seconds", "output_bytes", "kept_bytes"}], one for
// each layer, with them "input_bytes", and "hop": {"bytes", "seconds"}. InvalidArgument for
// anything else.
absl::StatusOr<ModelDescription> ParseModelDescription(const std::string& json);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_MODEL_DESCRIPTION_H_
