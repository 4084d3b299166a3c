#include "client/parley/pipeline_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "client/parley/units.h"
#include "common/tensor.h"
#include "server/pipeline_stage/schedule/job_schedule.h"
#include "server/pipeline_stage/schedule/schedules.h"
#include "server/pipeline_stage/schedule/timeline.h"

namespace parley {
namespace {

std::string ScheduleName(const JobConfig& job, const PipelinePlan& plan) {
  const absl::string_view name = NameOf(SpecOf(job, plan.schedule.microbatches).kind);
  return std::string(name);
}

std::set<uint32_t> PartsOf(const std::vector<Action>& actions) {
  std::set<uint32_t> parts;
  for (const Action& action : actions) {
    if (action.kind == ActionKind::kForward) parts.insert(action.part);
  }
  return parts;
}

std::string LayersText(uint32_t part, const std::vector<std::string>& layers) {
  if (layers.size() == 1) return absl::StrCat(part, ": ", layers.front());
  return absl::StrCat(part, ": ", layers.front(), " .. ", layers.back());
}

void AddStage(std::string& text, const ModelDescription& model, const PipelinePlan& plan,
              uint32_t stage) {
  uint64_t trained = 0;
  uint64_t bytes = 0;
  for (const TensorSpec& tensor : model.tensors) {
    if (std::count(tensor.stages().begin(), tensor.stages().end(), stage) == 0) continue;
    bytes += ByteCount(tensor);
    if (!tensor.buffer()) trained += ElementCount(tensor);
  }
  std::string begin = absl::StrFormat("  %5d %12d %13s %5d", stage, trained, BytesText(bytes),
                                      plan.prediction.stages[stage].peak_activations);
  for (const uint32_t part : PartsOf(plan.schedule.stages[stage])) {
    absl::StrAppend(&text, begin, "  ", LayersText(part, model.parts[part]), "\n");
    begin.assign(begin.size(), ' ');  // the stage's numbers stand beside its first part
  }
}

}  // namespace

std::string PipelineText(const JobConfig& job, const ModelDescription& model,
                         const PipelinePlan& plan) {
  std::string text =
      absl::StrFormat("%-20s %s; microbatches of a step: %d, of %d samples each\n", "schedule",
                      ScheduleName(job, plan), plan.schedule.microbatches, job.data().batch());
  absl::StrAppendFormat(&text,
                        "%-20s %.3f with equal stages; uneven ones and slow links make it larger\n",
                        "predicted bubble", plan.prediction.bubble);
  absl::StrAppendFormat(&text,
                        "\neach pipeline; kept: microbatches whose %s a stage has at "
                        "once, counted in each of its parts\n",
                        job.pipeline().recompute() ? "inputs" : "activations");
  absl::StrAppendFormat(&text, "  %5s %12s %13s %5s  parts and their layers\n", "stage",
                        "parameters", "with buffers", "kept");
  for (uint32_t stage = 0; stage < plan.schedule.stages.size(); ++stage) {
    AddStage(text, model, plan, stage);
  }
  return text;
}

absl::Status WriteTimeline(const JobConfig& job, const ModelDescription& model,
                           const std::string& path, FileSystem& files) {
  if (job.cluster().stages() == 0) {
    return absl::InvalidArgumentError(
        "--timeline: shows the stages of a pipeline, and the job has none (cluster.stages is 0)");
  }
  const absl::StatusOr<PipelinePlan> plan = PlanPipelines(job, model);
  if (!plan.ok()) return plan.status();
  const std::string title =
      absl::StrFormat("%s: %s, microbatches: %d, equal stages, 1s a forward", job.name(),
                      ScheduleName(job, *plan), plan->schedule.microbatches);
  const absl::Status written =
      WriteFileAtomically(files, path, DrawTimeline(plan->prediction, title));
  if (written.ok()) return written;
  return absl::Status(written.code(), absl::StrCat("--timeline: ", written.message()));
}

}  // namespace parley
