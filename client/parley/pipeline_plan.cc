#include "client/parley/pipeline_plan.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/types.pb.h"
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

// Of the parts that begin with these layers.
std::vector<PartCost> MeasuredCosts(const JobConfig& job, const std::vector<MeasuredLayer>& layers,
                                    const std::vector<uint32_t>& first_layers) {
  const std::vector<PartPlace> places = PlacesOf(job);
  std::vector<PartCost> costs;
  for (size_t part = 0; part < first_layers.size(); ++part) {
    const size_t end = part + 1 < first_layers.size() ? first_layers[part + 1] : layers.size();
    double forward = 0, backward = 0;
    for (size_t i = first_layers[part]; i < end; ++i) {
      forward += layers[i].forward_seconds;
      backward += layers[i].backward_seconds;
    }
    PartCost& cost = costs.emplace_back();
    cost.forward = absl::Seconds(forward / places[part].speed);
    cost.input_gradient = cost.weight_gradient = absl::Seconds(backward / 2 / places[part].speed);
  }
  return costs;
}

absl::StatusOr<Prediction> PredictCosts(const JobConfig& job, const Schedule& schedule,
                                        std::vector<PartCost> parts) {
  PipelineCosts costs;
  costs.parts = std::move(parts);
  if (job.pipeline().recompute()) {
    for (PartCost& part : costs.parts) part.input_gradient += part.forward;
  }
  costs.credits = CreditsNeeded(SpecOf(job, schedule.microbatches));
  costs.delay = DelayOf(job);
  absl::StatusOr<Prediction> prediction = Predict(schedule, costs);
  if (!prediction.ok()) return Refused(prediction.status());
  return prediction;
}

absl::StatusOr<PipelinePlan::Balanced> PlanBalanced(const JobConfig& job, const Schedule& schedule,
                                                    const std::vector<MeasuredLayer>& layers) {
  PartitionCosts costs;
  costs.places = PlacesOf(job);
  for (const MeasuredLayer& measured : layers) {
    LayerProfile& layer = costs.layers.emplace_back();
    layer.forward = absl::Seconds(measured.forward_seconds);
    layer.backward = absl::Seconds(measured.backward_seconds +
                                   (job.pipeline().recompute() ? measured.forward_seconds : 0));
    layer.output_bytes = measured.output_bytes;
  }
  const absl::StatusOr<Partition> partition = Balance(costs);
  if (!partition.ok()) return partition.status();
  absl::StatusOr<Prediction> prediction =
      PredictCosts(job, schedule, MeasuredCosts(job, layers, partition->first_layers));
  if (!prediction.ok()) return prediction.status();
  return PipelinePlan::Balanced{partition->first_layers, *std::move(prediction)};
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
  absl::StatusOr<Prediction> prediction = PredictCosts(job, *schedule, std::move(costs));
  if (!prediction.ok()) return prediction.status();
  plan.prediction = *std::move(prediction);
  if (plan.measured) {
    absl::StatusOr<PipelinePlan::Balanced> balanced = PlanBalanced(job, *schedule, model.costs);
    if (!balanced.ok()) return balanced.status();
    if (balanced->prediction.makespan < plan.prediction.makespan) {
      plan.balanced = *std::move(balanced);
    }
  }
  plan.schedule = *std::move(schedule);
  return plan;
}

}  // namespace parley
