#include "client/parley/memory_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/parley/units.h"
#include "common/job/checkpoints.h"
#include "common/job/consistency.h"
#include "common/job/contributor_places.h"
#include "common/job/optimizer_settings.h"
#include "common/tensor.h"
#include "server/pipeline_stage/schedule/job_schedule.h"
#include "server/pipeline_stage/schedule/schedules.h"

namespace parley {
namespace {

// Slices of so many bytes a worker reads where a shard on its machine has them
// (client/parameter_arena.h).
constexpr uint64_t kShownBytes = 256 << 10;

// What a job's options ask a shard to keep.
struct Keeps {
  uint64_t contributors;
  bool clocked;
  bool versions;  // those that workers read may be older than the newest
  bool
      apart;  // contributions until the verdict, since they are added in an order, or some left out
  bool reduces;  // before the step is applied: its norm decides
  bool evaluation;
  bool checkpoints;
  bool compensation;  // what each worker has pulled, until it has pushed
  bool ahead;         // what the open step makes of values and state, beside them
};

Keeps KeptIn(const JobConfig& job, const ModelDescription& model) {
  const Sync& sync = job.consistency().sync();
  Keeps keeps{};
  keeps.contributors = ContributorsOf(job.cluster());
  keeps.clocked = IsClocked(job);
  keeps.versions = keeps.clocked || sync.backup() > 0;
  keeps.apart = sync.deterministic() || sync.backup() > 0;
  keeps.reduces = job.optimizer().clip_norm() > 0 || job.optimizer().skip_nonfinite();
  keeps.evaluation = model.test_samples > 0;
  keeps.checkpoints = CheckpointsWhileTraining(job);
  keeps.ahead = sync.update_ahead();
  keeps.compensation = job.consistency().async().delay_compensation() > 0;
  return keeps;
}

void Add(const JobConfig& job, const Keeps& keeps, const TensorSpec& tensor, uint64_t elements,
         ShardMemory& shard) {
  const uint64_t bytes = elements * ElementBytes(tensor.dtype());
  ++shard.slices;
  shard.values += bytes;
  if (keeps.evaluation) shard.evaluation += bytes;
  if (keeps.checkpoints) shard.checkpoint += bytes;
  if (tensor.buffer()) {
    // Each contributor's value waits for the verdict, which takes one.
    shard.step_here += keeps.contributors * bytes;
    shard.step_remote += keeps.contributors * bytes;
    return;
  }
  if (keeps.versions) shard.readers += (keeps.compensation ? keeps.contributors : 1) * bytes;
  const uint64_t state = OptimizerStateNames(SettingsFor(job, tensor.name())).size() * bytes;
  shard.state += state;
  if (keeps.checkpoints) shard.checkpoint += state;
  if (keeps.ahead) shard.ahead += bytes + state;
  const uint64_t sum = elements * sizeof(float);
  // Of a pipeline each stage that has the tensor gives a gradient.
  const uint64_t gradients = keeps.contributors * std::max(1, tensor.stages_size());
  // Lent gradients are added up tile by tile, unless the sum's norm is wanted first.
  shard.step_here += keeps.clocked || keeps.reduces ? sum : 0;
  shard.step_remote += (keeps.apart ? gradients + 1 : 1) * sum;
}

// The parts that there are.
std::string Parts(const ShardMemory& shard) {
  std::string text = absl::StrCat("values ", BytesText(shard.values));
  for (const auto& [name, bytes] :
       {std::pair("evaluation", shard.evaluation), std::pair("what workers read", shard.readers),
        std::pair("optimizer", shard.state), std::pair("checkpoint", shard.checkpoint),
        std::pair("updates ahead", shard.ahead), std::pair("open step", shard.step_here)}) {
    if (bytes != 0) absl::StrAppend(&text, ", ", name, " ", BytesText(bytes));
  }
  return text;
}

bool Has(std::optional<uint32_t> stage, const TensorSpec& tensor) {
  const auto& stages = tensor.stages();
  return !stage || std::find(stages.begin(), stages.end(), *stage) != stages.end();
}

// Of a stage, or of a worker that has the whole model.
// versions: whether the session keeps its own values; stashed: copies of weights and gradients that
// a stage keeps beside them.
ComputeMemory PlanOne(std::optional<uint32_t> stage, bool versions, uint64_t stashed,
                      const ModelDescription& model, absl::Span<const Slice> slices) {
  uint64_t all = 0;
  uint64_t largest = 0;
  for (const TensorSpec& tensor : model.tensors) {
    if (!Has(stage, tensor)) continue;
    all += ByteCount(tensor);
    if (!tensor.buffer()) largest = std::max(largest, ByteCount(tensor));
  }
  uint64_t shown = 0;
  for (const Slice& slice : slices) {
    if (!Has(stage, model.tensors[slice.tensor()])) continue;
    const uint64_t bytes =
        (slice.end() - slice.begin()) * ElementBytes(model.tensors[slice.tensor()].dtype());
    if (bytes >= kShownBytes) shown += bytes;
  }
  // Values that may be older than the newest are copied.
  if (versions) shown = 0;
  return {.stage = stage,
          .stashed = stashed,
          .here = (2 + stashed) * all + largest - shown,
          .remote = (2 + stashed) * all + largest,
          .starting = 2 * all};
}

}  // namespace

std::vector<ShardMemory> PlanShards(const JobConfig& job, const ModelDescription& model,
                                    absl::Span<const Slice> slices) {
  const Keeps keeps = KeptIn(job, model);
  std::vector<ShardMemory> shards(job.cluster().shards());
  for (const Slice& slice : slices) {
    Add(job, keeps, model.tensors[slice.tensor()], slice.end() - slice.begin(),
        shards[slice.shard()]);
  }
  return shards;
}

ComputeMemory PlanCompute(const JobConfig& job, const ModelDescription& model,
                          absl::Span<const Slice> slices) {
  const bool versions = KeptIn(job, model).versions;
  const uint32_t stages = job.cluster().stages();
  if (stages == 0) {
    ComputeMemory memory = PlanOne(std::nullopt, versions, 0, model, slices);
    // What a rank of a node group hands round of the values that it has pulled.
    const uint32_t group = job.cluster().group();
    if (group > 1) memory.remote += memory.starting / 2 / group;
    return memory;
  }
  const std::optional<uint32_t> delay = DelayOf(job);
  const uint64_t stashed = delay.has_value() ? StashedCopies(*delay) : 0;
  ComputeMemory most = PlanOne(0, versions, stashed, model, slices);
  for (uint32_t stage = 1; stage < stages; ++stage) {
    const ComputeMemory memory = PlanOne(stage, versions, stashed, model, slices);
    if (memory.remote > most.remote) most = memory;
  }
  return most;
}

std::string MemoryText(absl::Span<const ShardMemory> shards, const ComputeMemory& compute) {
  std::string text = "memory for tensors, beside what a process needs anyway\n";
  const std::string who = compute.stage ? "stages" : "workers";
  for (size_t i = 0; i < shards.size(); ++i) {
    const ShardMemory& shard = shards[i];
    absl::StrAppendFormat(&text, "  shard %-4d %10s: %s\n", i, BytesText(shard.here()),
                          Parts(shard));
    if (shard.step_remote == shard.step_here) continue;
    absl::StrAppendFormat(&text, "  %10s %10s: with %s on other machines, open step %s\n", "",
                          BytesText(shard.remote()), who, BytesText(shard.step_remote));
  }
  const std::string what =
      compute.stashed > 0
          ? absl::StrCat("gradients, the largest of them once more, parameters, and ",
                         compute.stashed, " copies of them for steps that overlap;")
          : "gradients, the largest of them once more, and parameters;";
  if (compute.stage) {
    absl::StrAppendFormat(
        &text, "  stage %-4d %10s: the largest of a pipeline: %s activations come on top\n",
        *compute.stage, BytesText(compute.here), what);
  } else {
    absl::StrAppendFormat(&text, "  each worker %9s: %s activations and data come on top\n",
                          BytesText(compute.here), what);
  }
  if (compute.here < compute.remote) {
    absl::StrAppendFormat(&text, "  %10s %10s: with shards on other machines\n", "",
                          BytesText(compute.remote));
  }
  if (compute.here < compute.starting) {
    absl::StrAppendFormat(&text, "  %10s %10s: while it starts\n", "", BytesText(compute.starting));
  }
  if (compute.stage) {
    absl::StrAppend(&text,
                    "  workers have no parameters, their stages have them; data come on top\n");
  }
  return text;
}

}  // namespace parley
