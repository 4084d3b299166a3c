#include "client/parley/pipeline_plan.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/types.pb.h"
#include "server/pipeline_stage/schedule/eager.h"
#include "server/pipeline_stage/schedule/job_schedule.h"
#include "server/pipeline_stage/schedule/partition.h"
#include "server/pipeline_stage/schedule/schedules.h"

namespace parley {
namespace {

absl::Status Refused(const absl::Status& why) {
  return absl::Status(why.code(),
                      absl::StrCat("pipeline: this schedule cannot run: ", why.message()));
}

absl::Status CheckModel(const JobConfig& job, const ModelDescription& model, uint32_t parts) {
  const uint32_t stages = job.cluster().stages();
  if (model.parts.size() != parts) {
    return absl::InvalidArgumentError(absl::StrCat("the worker's description of its model has ",
                                                   model.parts.size(), " parts, its pipelines ",
                                                   parts));
  }
  for (const TensorSpec& tensor : model.tensors) {
    const auto wrong = [&](uint32_t stage) { return stage >= stages; };
    if (tensor.stages().empty() ||
        std::any_of(tensor.stages().begin(), tensor.stages().end(), wrong)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the worker's description of its model: ", tensor.name(),
                       " is on none of the ", stages, " stages"));
    }
  }
  return absl::OkStatus();
}

// Microbatches of steps that overlap: so many that the way in and out of the pipeline is little.
constexpr uint32_t kOverlapping = 512;

PartCost EqualCost() {
  PartCost part;
  part.forward = part.input_gradient = part.weight_gradient = absl::Seconds(1);
  return part;
}

std::vector<uint32_t> FirstLayers(const ModelDescription& model) {
  std::vector<uint32_t> first_layers;
  uint32_t next = 0;
  for (const std::vector<std::string>& layers : model.parts) {
    first_layers.push_back(next);
    next += static_cast<uint32_t>(layers.size());
  }
  return first_layers;
}

size_t EndOf(const std::vector<MeasuredLayer>& layers, const std::vector<uint32_t>& first_layers,
             size_t part) {
  return part + 1 < first_layers.size() ? first_layers[part + 1] : layers.size();
}

// By the layers of a part themselves, for a backward.
uint64_t KeptBytes(const std::vector<MeasuredLayer>& layers,
                   const std::vector<uint32_t>& first_layers, size_t part) {
  uint64_t bytes = 0;
  for (size_t i = first_layers[part]; i < EndOf(layers, first_layers, part); ++i) {
    bytes += layers[i].kept_bytes;
  }
  return bytes;
}

// Of the parts that begin with these layers.
std::vector<PartCost> MeasuredCosts(const JobConfig& job, const std::vector<MeasuredLayer>& layers,
                                    const std::vector<uint32_t>& first_layers) {
  const std::vector<PartPlace> places = PlacesOf(job);
  std::vector<PartCost> costs;
  for (size_t part = 0; part < first_layers.size(); ++part) {
    const size_t end = EndOf(layers, first_layers, part);
    double forward = 0, backward = 0;
    for (size_t i = first_layers[part]; i < end; ++i) {
      forward += layers[i].forward_seconds;
      backward += layers[i].backward_seconds;
    }
    PartCost& cost = costs.emplace_back();
    cost.output_bytes = layers[end - 1].output_bytes;
    cost.activation_bytes =
        first_layers[part] == 0 ? 0 : layers[first_layers[part] - 1].output_bytes;
    (job.pipeline().recompute() ? cost.again_bytes : cost.activation_bytes) +=
        KeptBytes(layers, first_layers, part);
    cost.forward = absl::Seconds(forward / places[part].speed);
    cost.input_gradient = cost.weight_gradient = absl::Seconds(backward / 2 / places[part].speed);
  }
  return costs;
}

PipelineCosts CostsOf(const JobConfig& job, const ModelDescription& model, uint32_t microbatches,
                      std::vector<PartCost> parts) {
  PipelineCosts costs;
  costs.parts = std::move(parts);
  if (job.pipeline().recompute()) {
    for (PartCost& part : costs.parts) part.input_gradient += part.forward;
  }
  costs.credits = CreditsNeeded(SpecOf(job, microbatches));
  costs.delay = DelayOf(job);
  costs.input_bytes = model.input_bytes;
  if (costs.delay.has_value()) {
    costs.inputs = (1 + StepsFedAhead(job) + StepsFedTogether(job) - 1) *
                   std::max(job.accumulate(), uint32_t{1});
  }
  if (model.costs.empty() || !model.hop.has_value() || model.hop->seconds == 0) return costs;
  costs.hop = absl::Seconds(model.hop->seconds);
  // The stages' sends never wait. On links that take their time as many more are under way.
  costs.credits += 2 * job.cluster().stages();
  return costs;
}

absl::StatusOr<Prediction> PredictCosts(const JobConfig& job, const ModelDescription& model,
                                        const Schedule& schedule, std::vector<PartCost> parts) {
  absl::StatusOr<Prediction> prediction =
      Predict(schedule, CostsOf(job, model, schedule.microbatches, std::move(parts)));
  if (!prediction.ok()) return Refused(prediction.status());
  return prediction;
}

// ResourceExhausted where a stage has no room for its activations.
absl::Status CheckMemory(const JobConfig& job, const ModelDescription& model,
                         const Prediction& prediction) {
  if (model.stage_memory == 0) return absl::OkStatus();
  if (job.pipeline().schedule() == EAGER && !job.pipeline().has_forwards_ahead()) {
    return absl::OkStatus();  // as many as fit
  }
  for (size_t stage = 0; stage < prediction.stages.size(); ++stage) {
    const uint64_t bytes = prediction.stages[stage].peak_bytes;
    if (bytes <= model.stage_memory) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        "pipeline: the activations of stage ", stage, " take ", bytes, " bytes, of ",
        model.stage_memory,
        " allowed: another schedule keeps fewer microbatches (docs/schedules.md), recompute: true "
        "only their inputs"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> AheadWithin(const JobConfig& job, const ModelDescription& model,
                                     uint32_t microbatches, const std::vector<PartCost>& parts) {
  auto ahead = ForwardsAhead(job.cluster().stages(), microbatches,
                             CostsOf(job, model, microbatches, parts), model.stage_memory);
  if (ahead.ok()) return ahead;
  return absl::Status(ahead.status().code(), absl::StrCat("pipeline: EAGER cannot run, even as ",
                                                          ahead.status().message()));
}

absl::Status AddAhead(const JobConfig& job, const ModelDescription& model,
                      std::vector<PartCost> parts, PipelinePlan& plan) {
  const uint32_t microbatches = plan.schedule.microbatches;
  const auto ahead = AheadWithin(job, model, microbatches, parts);
  if (!ahead.ok()) return ahead.status();
  JobConfig with = job;
  with.mutable_pipeline()->set_forwards_ahead(*ahead);
  const auto schedule = ScheduleOf(with, microbatches);
  if (!schedule.ok()) return Refused(schedule.status());
  const auto prediction = PredictCosts(with, model, *schedule, std::move(parts));
  if (!prediction.ok()) return prediction.status();
  plan.ahead = {*ahead, prediction->makespan};
  return absl::OkStatus();
}

// ResourceExhausted: that cut does not fit.
absl::StatusOr<PipelinePlan::Balanced> PlanBalanced(const JobConfig& job, const Schedule& schedule,
                                                    const ModelDescription& model) {
  PartitionCosts costs;
  costs.places = PlacesOf(job);
  for (const MeasuredLayer& measured : model.costs) {
    LayerProfile& layer = costs.layers.emplace_back();
    layer.forward = absl::Seconds(measured.forward_seconds);
    layer.backward = absl::Seconds(measured.backward_seconds +
                                   (job.pipeline().recompute() ? measured.forward_seconds : 0));
    layer.output_bytes = measured.output_bytes;
  }
  const absl::StatusOr<Partition> partition = Balance(costs);
  if (!partition.ok()) return partition.status();
  std::vector<PartCost> parts = MeasuredCosts(job, model.costs, partition->first_layers);
  absl::StatusOr<Prediction> prediction = PredictCosts(job, model, schedule, parts);
  if (!prediction.ok()) return prediction.status();
  if (absl::Status fits = CheckMemory(job, model, *prediction); !fits.ok()) return fits;
  if (job.pipeline().schedule() == EAGER) {
    const auto ahead = AheadWithin(job, model, schedule.microbatches, parts);
    if (!ahead.ok()) return ahead.status();
  }
  return PipelinePlan::Balanced{partition->first_layers, *std::move(prediction)};
}

absl::Status AddMeasured(const JobConfig& job, const ModelDescription& model,
                         std::vector<PartCost> parts, PipelinePlan& plan) {
  if (absl::Status fits = CheckMemory(job, model, plan.prediction); !fits.ok()) return fits;
  if (job.pipeline().schedule() == EAGER) {
    if (absl::Status fits = AddAhead(job, model, std::move(parts), plan); !fits.ok()) return fits;
  }
  absl::StatusOr<PipelinePlan::Balanced> balanced = PlanBalanced(job, plan.schedule, model);
  plan.balanced_fits = !absl::IsResourceExhausted(balanced.status());
  if (!plan.balanced_fits) return absl::OkStatus();
  if (!balanced.ok()) return balanced.status();
  if (balanced->prediction.makespan < plan.prediction.makespan) {
    plan.balanced = *std::move(balanced);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PipelinePlan> PlanPipelines(const JobConfig& job, const ModelDescription& model) {
  PipelinePlan plan;
  const uint32_t of_a_step = std::max(job.accumulate(), uint32_t{1});
  if (DelayOf(job).has_value()) plan.steps = std::clamp(kOverlapping / of_a_step, 4U, 64U);
  const uint32_t microbatches = plan.steps * of_a_step;
  absl::StatusOr<Schedule> schedule = ScheduleOf(job, microbatches);
  if (!schedule.ok()) return Refused(schedule.status());
  if (absl::Status fits = CheckModel(job, model, schedule->parts); !fits.ok()) return fits;

  plan.measured = !model.costs.empty();
  std::vector<PartCost> costs(schedule->parts, EqualCost());
  if (plan.measured) costs = MeasuredCosts(job, model.costs, FirstLayers(model));
  absl::StatusOr<Prediction> prediction = PredictCosts(job, model, *schedule, costs);
  if (!prediction.ok()) return prediction.status();
  plan.prediction = *std::move(prediction);
  plan.schedule = *std::move(schedule);
  if (plan.measured) {
    absl::Status added = AddMeasured(job, model, std::move(costs), plan);
    if (!added.ok()) return added;
  }
  return plan;
}

}  // namespace parley
