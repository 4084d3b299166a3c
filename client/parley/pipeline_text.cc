#include "client/parley/pipeline_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
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
  if (plan.measured) {
    absl::StrAppendFormat(&begin, " %12s", BytesText(plan.prediction.stages[stage].peak_bytes));
  }
  for (const uint32_t part : PartsOf(plan.schedule.stages[stage])) {
    absl::StrAppend(&text, begin, "  ", LayersText(part, model.parts[part]), "\n");
    begin.assign(begin.size(), ' ');  // the stage's numbers stand beside its first part
  }
}

std::string SecondsText(absl::Duration duration) {
  return absl::StrFormat("%.3g s", absl::ToDoubleSeconds(duration));
}

std::string HopText(const ModelDescription& model) {
  if (model.costs.empty() || !model.hop.has_value()) return "";
  if (model.hop->bytes == 0) {
    return absl::StrFormat("%-20s %.3f ms between two stages, as given\n", "hop",
                           1e3 * model.hop->seconds);
  }
  return absl::StrFormat("%-20s %.3f ms between two stages (%s over TCP within this machine)\n",
                         "hop", 1e3 * model.hop->seconds, BytesText(model.hop->bytes));
}

// How many forwards ahead to write into the job file, and what they bring.
std::string AheadText(const JobConfig& job, const ModelDescription& model,
                      const PipelinePlan& plan) {
  if (!plan.ahead.has_value()) return "";
  const std::string memory =
      model.stage_memory == 0 ? ""
                              : absl::StrCat(" within ", BytesText(model.stage_memory), " a stage");
  return absl::StrFormat(
      "%-20s %d of at most %d are worth it%s: %s a step, with pipeline { "
      "schedule: EAGER forwards_ahead: %d }\n",
      "forwards ahead", plan.ahead->forwards, job.cluster().stages() - 1, memory,
      SecondsText(plan.ahead->step / plan.steps), plan.ahead->forwards);
}

std::string BubbleText(const PipelinePlan& plan) {
  if (!plan.measured) {
    return absl::StrFormat(
        "%-20s %.3f with equal stages; uneven ones and slow links make it larger\n",
        "predicted bubble", plan.prediction.bubble);
  }
  return absl::StrFormat("%-20s %.3f with the layers as measured here, %s a step\n",
                         "predicted bubble", plan.prediction.bubble,
                         SecondsText(plan.prediction.makespan / plan.steps));
}

std::string WeightsText(const JobConfig& job) {
  const std::optional<uint32_t> delay = DelayOf(job);
  if (!delay.has_value()) return "";
  return absl::StrFormat("%-20s %d %s old when a step is computed with them; steps overlap\n",
                         "weights", *delay, *delay == 1 ? "step" : "steps");
}

// The cut to write into the job file, and what it brings.
std::string BalancedText(const ModelDescription& model, const PipelinePlan& plan) {
  if (!plan.measured) return "";
  if (!plan.balanced_fits) {
    return absl::StrFormat("%-20s as it is; one that is balanced better does not fit into %s\n",
                           "balanced cut", BytesText(model.stage_memory));
  }
  if (!plan.balanced.has_value()) return absl::StrFormat("%-20s as it is\n", "balanced cut");
  std::vector<std::string> layers;
  for (const auto& part : model.parts) layers.insert(layers.end(), part.begin(), part.end());
  std::string cut;
  for (size_t part = 1; part < plan.balanced->first_layers.size(); ++part) {
    absl::StrAppend(&cut, " cut_before: \"", layers[plan.balanced->first_layers[part]], "\"");
  }
  return absl::StrFormat("%-20s %.3f, %s a step, with pipeline {%s }\n", "balanced cut",
                         plan.balanced->prediction.bubble,
                         SecondsText(plan.balanced->prediction.makespan / plan.steps), cut);
}

std::string MeasuredText(const JobConfig& job, const ModelDescription& model) {
  if (model.costs.empty()) return "";
  std::string text = absl::StrFormat(
      "\nlayers, as measured here with a microbatch of %d samples; kept: for its backward\n"
      "  %9s %9s %13s %12s  name\n",
      job.data().batch(), "forward", "backward", "output", "kept");
  size_t layer = 0;
  for (const auto& part : model.parts) {
    for (const std::string& name : part) {
      const MeasuredLayer& cost = model.costs[layer++];
      absl::StrAppendFormat(&text, "  %6.2f ms %6.2f ms %13s %12s  %s\n",
                            1e3 * cost.forward_seconds, 1e3 * cost.backward_seconds,
                            BytesText(cost.output_bytes), BytesText(cost.kept_bytes), name);
    }
  }
  return text;
}

}  // namespace

std::string PipelineText(const JobConfig& job, const ModelDescription& model,
                         const PipelinePlan& plan) {
  std::string text = absl::StrFormat("%-20s %s; microbatches of a step: %d, of %d samples each\n",
                                     "schedule", ScheduleName(job, plan),
                                     plan.schedule.microbatches / plan.steps, job.data().batch());
  absl::StrAppend(&text, WeightsText(job), HopText(model), BubbleText(plan),
                  AheadText(job, model, plan), BalancedText(model, plan));
  absl::StrAppendFormat(&text,
                        "\neach pipeline; kept: microbatches whose %s a stage has at "
                        "once, counted in each of its parts\n",
                        job.pipeline().recompute() ? "inputs" : "activations");
  absl::StrAppendFormat(&text, "  %5s %12s %13s %5s%s  parts and their layers\n", "stage",
                        "parameters", "with buffers", "kept",
                        plan.measured ? absl::StrFormat(" %12s", "activations") : "");
  for (uint32_t stage = 0; stage < plan.schedule.stages.size(); ++stage) {
    AddStage(text, model, plan, stage);
  }
  return absl::StrCat(text, MeasuredText(job, model));
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
      absl::StrFormat("%s: %s, microbatches: %d, %s", job.name(), ScheduleName(job, *plan),
                      plan->schedule.microbatches,
                      plan->measured ? "layers as measured" : "equal stages, 1s a forward");
  const absl::Status written =
      WriteFileAtomically(files, path, DrawTimeline(plan->prediction, title));
  if (written.ok()) return written;
  return absl::Status(written.code(), absl::StrCat("--timeline: ", written.message()));
}

}  // namespace parley
