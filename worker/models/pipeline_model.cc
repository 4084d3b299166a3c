#include "worker/models/pipeline_model.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/torch/dtype.h"
#include "client/torch/named_tensors.h"
#include "client/torch/torch_status.h"
#include "server/pipeline_stage/schedule/job_schedule.h"
#include "server/pipeline_stage/schedule/partition.h"
#include "worker/models/layers.h"
#include "worker/models/work_count.h"

namespace parley {
namespace {

// What the whole model has, and which layers have it.
struct LayerTensors {
  std::vector<TensorSpec> specs;          // parameters first
  std::vector<std::set<std::string>> of;  // by layer: names
  std::vector<uint64_t> parameters;       // by layer: elements
};

// Multiplications of one sample in each layer. One layer after the other has memory.
absl::StatusOr<std::vector<uint64_t>> WorkOf(const std::vector<LayerPlan>& layers,
                                             const SampleLayout& x) {
  std::vector<uint64_t> work;
  const absl::Status counted = CatchTorch("the model and a sample of the data", [&] {
    const c10::NoGradGuard no_grad;
    std::vector<int64_t> shape = {1};
    shape.insert(shape.end(), x.shape.begin(), x.shape.end());
    LayerFlow flow = {at::zeros(shape, at::TensorOptions().dtype(*ToScalarType(x.dtype)))};
    for (const LayerPlan& plan : layers) {
      LayerSet set(/*seed=*/0, LayerSet::Values::kZero);
      const WorkCount count;
      RunLayer(plan.make(set), /*training=*/false, flow);
      work.push_back(count.multiplications());
    }
  });
  if (!counted.ok()) return counted;
  return work;
}

absl::StatusOr<LayerTensors> LookAt(const std::vector<LayerPlan>& layers) {
  LayerTensors all;
  std::vector<NamedTensor> parameters, buffers;
  std::set<std::string> seen;
  const absl::Status made = CatchTorch("making the layers of the model", [&] {
    for (const LayerPlan& plan : layers) {
      LayerSet set(/*seed=*/0, LayerSet::Values::kNone);
      const NetworkLayer layer = plan.make(set);
      std::set<std::string>& names = all.of.emplace_back();
      uint64_t& elements = all.parameters.emplace_back();
      for (const NamedTensor& named : layer.tensors) {
        names.insert(named.name);
        if (!named.buffer) elements += static_cast<uint64_t>(named.tensor.numel());
        if (!seen.insert(named.name).second) continue;
        // SpecsOf is for tensors of the CPU; this one has the memory of one element.
        at::Tensor shape =
            at::empty({}, named.tensor.options().device(at::kCPU)).expand(named.tensor.sizes());
        if (named.tensor.requires_grad()) shape.requires_grad_(true);
        (named.buffer ? buffers : parameters).push_back({named.name, shape, named.buffer});
      }
    }
  });
  if (!made.ok()) return made;
  parameters.insert(parameters.end(), std::make_move_iterator(buffers.begin()),
                    std::make_move_iterator(buffers.end()));
  absl::StatusOr<std::vector<TensorSpec>> specs = SpecsOf(parameters);
  if (!specs.ok()) return specs.status();
  all.specs = *std::move(specs);
  return all;
}

absl::StatusOr<std::vector<size_t>> CutByHand(const Pipeline& pipeline,
                                              const std::vector<LayerPlan>& layers) {
  std::vector<size_t> first_layers = {0};
  for (const std::string& name : pipeline.cut_before()) {
    const auto found = std::find_if(layers.begin(), layers.end(),
                                    [&](const LayerPlan& layer) { return layer.name == name; });
    const auto at = static_cast<size_t>(found - layers.begin());
    if (found == layers.end() || at <= first_layers.back()) {
      std::vector<std::string> names;
      for (const LayerPlan& layer : layers) names.push_back(layer.name);
      return absl::InvalidArgumentError(absl::StrCat(
          "pipeline.cut_before: '", name, "' is no layer of the model that comes behind '",
          layers[first_layers.back()].name, "'; its layers are ", absl::StrJoin(names, ", ")));
    }
    first_layers.push_back(at);
  }
  return first_layers;
}

// About as much work in each part, for how fast its place is.
absl::StatusOr<std::vector<size_t>> CutEvenly(const std::vector<LayerPlan>& layers,
                                              const SampleLayout& x,
                                              std::vector<PartPlace> places) {
  const absl::StatusOr<std::vector<uint64_t>> work = WorkOf(layers, x);
  if (!work.ok()) return work.status();
  PartitionCosts costs;
  for (const uint64_t multiplications : *work) {
    LayerProfile& layer = costs.layers.emplace_back();
    layer.forward = absl::Nanoseconds(static_cast<int64_t>(1 + multiplications));
  }
  costs.places = std::move(places);
  const absl::StatusOr<Partition> partition = Balance(costs);
  if (!partition.ok()) return partition.status();
  return std::vector<size_t>(partition->first_layers.begin(), partition->first_layers.end());
}

}  // namespace

uint32_t PipelineParts(const JobConfig& job) {
  return job.cluster().stages() * std::max(1U, job.pipeline().parts_per_stage());
}

std::vector<uint32_t> PartsOfStage(const JobConfig& job, uint32_t stage) {
  const uint32_t stages = job.cluster().stages();
  std::vector<uint32_t> parts;
  for (uint32_t part = stage; part < PipelineParts(job); part += stages) parts.push_back(part);
  if (job.pipeline().schedule() == CHIMERA) parts.push_back(stages - 1 - stage);
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  return parts;
}

absl::StatusOr<PipelineModel> PlanPipeline(const JobConfig& job, const SampleLayout& x) {
  PipelineModel model;
  absl::StatusOr<std::vector<LayerPlan>> layers = PlanLayers(job, x);
  if (!layers.ok()) return layers.status();
  model.layers = *std::move(layers);
  const uint32_t parts = PipelineParts(job);
  if (model.layers.size() < parts) {
    return absl::InvalidArgumentError(absl::StrCat("cluster.stages: the model has ",
                                                   model.layers.size(), " layers, too few for ",
                                                   parts, " parts"));
  }
  absl::StatusOr<LayerTensors> tensors = LookAt(model.layers);
  if (!tensors.ok()) return tensors.status();
  absl::StatusOr<std::vector<size_t>> cut = job.pipeline().cut_before().empty()
                                                ? CutEvenly(model.layers, x, PlacesOf(job))
                                                : CutByHand(job.pipeline(), model.layers);
  if (!cut.ok()) return cut.status();
  model.first_layers = *std::move(cut);

  std::map<std::string, std::set<uint32_t>> stages;  // by tensor
  for (uint32_t stage = 0; stage < job.cluster().stages(); ++stage) {
    for (const uint32_t part : PartsOfStage(job, stage)) {
      uint64_t parameters = 0;
      for (size_t layer = model.first_layers[part]; layer < model.end_of(part); ++layer) {
        parameters += tensors->parameters[layer];
        for (const std::string& name : tensors->of[layer]) stages[name].insert(stage);
      }
      if (parameters != 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("pipeline.cut_before: part ", part, " of the model, from layer '",
                       model.layers[model.first_layers[part]].name, "', has nothing to train"));
    }
  }
  model.tensors = std::move(tensors->specs);
  for (TensorSpec& tensor : model.tensors) {
    for (const uint32_t stage : stages[tensor.name()]) tensor.add_stages(stage);
    if (tensor.buffer() && tensor.stages_size() > 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "pipeline.schedule: must not be CHIMERA for a model with '", tensor.name(),
          "': two stages have it, and the statistics of each would be of its microbatches alone"));
    }
  }
  return model;
}

}  // namespace parley
