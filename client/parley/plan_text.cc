#include "client/parley/plan_text.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/parley/memory_plan.h"
#include "client/parley/pipeline_plan.h"
#include "client/parley/pipeline_text.h"
#include "client/parley/units.h"
#include "common/job/consistency.h"
#include "common/job/contributor_places.h"
#include "common/job/data_division.h"
#include "common/job/learning_rate.h"
#include "common/tensor.h"
#include "server/coordinator/placement.h"
#include "server/coordinator/slice_ranks.h"

namespace parley {
namespace {

uint64_t Elements(const Slice& slice) { return slice.end() - slice.begin(); }

std::string SliceRow(const TensorSpec& tensor, const Slice& slice) {
  std::string name = tensor.name();
  if (Elements(slice) != ElementCount(tensor)) {
    absl::StrAppend(&name, "@", slice.begin(), ":", slice.end());
  }
  return absl::StrFormat("  %-40s %-4s %-20s %10s%s\n", name, DataTypeName(tensor.dtype()),
                         absl::StrCat("[", absl::StrJoin(tensor.shape(), ","), "]"),
                         BytesText(Elements(slice) * ElementBytes(tensor.dtype())),
                         tensor.buffer() ? "  buffer" : "");
}

std::string StageProcesses(const JobConfig& job) {
  const uint64_t stages = job.cluster().stages();
  if (stages == 0) return "";
  return absl::StrFormat(", %d of parley-stage (%d for each worker)",
                         stages * job.cluster().workers(), stages);
}

// What each rank of a node group sends; nothing where there are none.
std::string GroupText(const JobConfig& job, const ModelDescription& model,
                      const std::vector<Slice>& slices) {
  const uint32_t group = job.cluster().group();
  if (group <= 1) return "";
  const std::vector<uint32_t> ranks = SliceRanks(model.tensors, slices, group);
  std::vector<uint64_t> bytes(group, 0);
  for (size_t i = 0; i < slices.size(); ++i) {
    bytes[ranks[i]] +=
        Elements(slices[i]) * ElementBytes(model.tensors[slices[i].tensor()].dtype());
  }
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  return absl::StrFormat(
      "%-20s %d of %d workers, each on one host; a worker sends %s to %s in a step, the model once "
      "for a group\n",
      "node groups", ContributorsOf(job.cluster()), group, BytesText(*least), BytesText(*most));
}

// In bounded and async each contribution is a step of its own.
uint64_t SamplesOfStep(const JobConfig& job) {
  return NominalSamples(job) * (IsClocked(job) ? 1 : LeastCounted(job, job.cluster().workers()));
}

std::string SamplesOfStepText(const JobConfig& job) {
  const uint32_t backup = job.consistency().sync().backup();
  const std::string without = backup == 0 ? "" : absl::StrCat(", ", backup, " of them backup");
  return absl::StrFormat("%-20s %d (%d workers%s, batch %d, accumulate %d)\n", "samples of a step",
                         SamplesOfStep(job), job.cluster().workers(), without, job.data().batch(),
                         job.accumulate());
}

void AddSteps(std::string& text, const JobConfig& job, const ModelDescription& model) {
  const uint64_t samples = SamplesOfStep(job);
  absl::StrAppendFormat(&text, "%-20s %d for training, %d for evaluation\n", "samples",
                        model.training_samples, model.test_samples);
  text += SamplesOfStepText(job);
  absl::StrAppendFormat(&text, "%-20s %d\n", "steps of an epoch",
                        samples == 0 ? 0 : (model.training_samples + samples - 1) / samples);
  absl::StrAppendFormat(&text, "%-20s %d\n", "steps in all",
                        TotalSteps(job, model.training_samples));
}

// By what the schedule multiplies the rate on its way; nothing where that is 1 throughout.
void AddRates(std::string& text, const JobConfig& job, const ModelDescription& model) {
  const uint64_t of_a_step = IsClocked(job) ? job.cluster().workers() : 1;
  const uint64_t steps = TotalSteps(job, model.training_samples) / of_a_step;
  if (steps < 2 || model.training_samples == 0) return;
  const double epochs = static_cast<double>(NominalSamples(job)) *
                        LeastCounted(job, job.cluster().workers()) /
                        static_cast<double>(model.training_samples);
  std::vector<double> factors;
  for (const uint64_t quarter : {0, 1, 2, 3, 4}) {
    const uint64_t done = (steps - 1) / 4 * quarter + (steps - 1) % 4 * quarter / 4;
    const StepPlace place{
        .step = done + 1, .epochs_done = static_cast<double>(done) * epochs, .epochs = epochs};
    factors.push_back(LearningRateFactor(job, place));
  }
  if (factors == std::vector<double>(5, 1)) return;
  absl::StrAppendFormat(&text,
                        "%-20s x %.3g in step 1, %.3g after 1/4 of the steps, %.3g after 1/2, %.3g "
                        "after 3/4, %.3g in the last one\n",
                        "learning rate", factors[0], factors[1], factors[2], factors[3],
                        factors[4]);
}

}  // namespace

absl::StatusOr<std::string> PlanText(const JobConfig& job, const ModelDescription& model) {
  const uint32_t shards = job.cluster().shards();
  const uint32_t workers = job.cluster().workers();
  const auto slices = Place(model.tensors, shards);
  if (!slices.ok()) return slices.status();

  std::string pipelines;
  if (job.cluster().stages() != 0) {
    const auto plan = PlanPipelines(job, model);
    if (!plan.ok()) return plan.status();
    pipelines = PipelineText(job, model, *plan);
  }

  std::string text =
      absl::StrFormat("%-20s 1 coordinator, %d of parley-shard, %d of parley-worker%s\n",
                      "processes", shards, workers, StageProcesses(job));
  text += GroupText(job, model, *slices);
  AddSteps(text, job, model);
  AddRates(text, job, model);

  uint64_t trained = 0;
  uint64_t values = 0;
  for (const TensorSpec& tensor : model.tensors) {
    values += ByteCount(tensor);
    if (!tensor.buffer()) trained += ElementCount(tensor);
  }
  absl::StrAppendFormat(&text, "%-20s %d in %d tensors; with buffers %s\n", "parameters", trained,
                        model.tensors.size(), BytesText(values));
  absl::StrAppend(&text, pipelines);

  const std::vector<ShardMemory> memory = PlanShards(job, model, *slices);
  std::vector<std::string> rows(shards);
  for (const Slice& slice : *slices) {
    rows[slice.shard()] += SliceRow(model.tensors[slice.tensor()], slice);
  }
  for (uint32_t i = 0; i < shards; ++i) {
    absl::StrAppendFormat(&text, "\nshard %d: %s in slices: %d\n%s", i, BytesText(memory[i].values),
                          memory[i].slices, rows[i]);
  }

  absl::StrAppend(&text, "\n", MemoryText(memory, PlanCompute(job, model, *slices)));
  return text;
}

std::string OwnProgramPlanText(const JobConfig& job) {
  return absl::StrFormat(
      "%-20s 1 coordinator, %d of parley-shard, %d of a program of your own\n%s"
      "%-20s are the program's own, and so not looked at (docs/api.md, Your own program)\n",
      "processes", job.cluster().shards(), job.cluster().workers(), SamplesOfStepText(job),
      "model and data");
}

}  // namespace parley
