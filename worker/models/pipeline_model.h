#ifndef PARLEY_WORKER_MODELS_PIPELINE_MODEL_H_
#define PARLEY_WORKER_MODELS_PIPELINE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/types.pb.h"
#include "worker/data/data_source.h"
#include "worker/models/layered_network.h"

namespace parley {

// A model as a pipeline has it: alike in all processes of a job, since it follows from the job file
// and the samples' layout alone.
struct PipelineModel {
  std::vector<LayerPlan> layers;
  std::vector<size_t> first_layers;  // of each part; the first is 0
  // Of the whole model, with the stages that have them.
  std::vector<TensorSpec> tensors;

  size_t parts() const { return first_layers.size(); }
  size_t end_of(size_t part) const {
    return part + 1 < parts() ? first_layers[part + 1] : layers.size();
  }
};

// Parts of the job's pipelines.
uint32_t PipelineParts(const JobConfig& job);
// Those that a stage has, ascending: S, S + D ...; in CHIMERA S and D - 1 - S.
std::vector<uint32_t> PartsOfStage(const JobConfig& job, uint32_t stage);

// Where the cut is not given, each layer is tried on a sample, one after the other.
// InvalidArgument: PlanLayers's; the model has fewer layers than the pipelines have parts;
// pipeline.cut_before names a layer that there is not, or not in order; a part has nothing to
// train.
absl::StatusOr<PipelineModel> PlanPipeline(const JobConfig& job, const SampleLayout& x);

}  // namespace parley

#endif  // PARLEY_WORKER_MODELS_PIPELINE_MODEL_H_
