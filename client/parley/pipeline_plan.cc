#include "client/parley/pipeline_plan.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/types.pb.h"
#include "server/pipeline_stage/schedule/job_schedule.h"
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

}  // namespace

absl::StatusOr<PipelinePlan> PlanPipelines(const JobConfig& job, const ModelDescription& model) {
  const uint32_t microbatches = std::max(job.accumulate(), uint32_t{1});
  absl::StatusOr<Schedule> schedule = ScheduleOf(job, microbatches);
  if (!schedule.ok()) return Refused(schedule.status());
  if (absl::Status fits = CheckModel(job, model, schedule->parts); !fits.ok()) return fits;

  PartCost part;
  part.forward = part.input_gradient = part.weight_gradient = absl::Seconds(1);
  if (job.pipeline().recompute()) part.input_gradient += part.forward;
  PipelineCosts costs;
  costs.parts.assign(schedule->parts, part);
  costs.credits = CreditsNeeded(SpecOf(job, microbatches));
  absl::StatusOr<Prediction> prediction = Predict(*schedule, costs);
  if (!prediction.ok()) return Refused(prediction.status());
  return PipelinePlan{*std::move(schedule), *std::move(prediction)};
}

}  // namespace parley
