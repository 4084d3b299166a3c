#include "client/parley/plan_text.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/parley/units.h"
#include "common/job/checkpoints.h"
#include "common/job/consistency.h"
#include "common/job/data_division.h"
#include "common/job/optimizer_settings.h"
#include "common/tensor.h"
#include "server/coordinator/placement.h"

namespace parley {
namespace {

// Of one shard, in bytes.
struct ShardMemory {
  uint64_t slices = 0;
  uint64_t values = 0;
  uint64_t sums = 0;        // of contributions to the open step
  uint64_t state = 0;       // of the optimizer
  uint64_t kept = 0;        // of the version that is evaluated
  uint64_t pulled = 0;      // what workers have pulled, to compensate delays
  uint64_t checkpoint = 0;  // of the version that is being written

  uint64_t all() const { return 2 * values + sums + state + kept + pulled + checkpoint; }
};

uint64_t Elements(const Slice& slice) { return slice.end() - slice.begin(); }

uint64_t StateBytes(const JobConfig& job, const TensorSpec& tensor, const Slice& slice) {
  if (tensor.buffer()) return 0;
  return OptimizerStateNames(SettingsFor(job, tensor.name())).size() * Elements(slice) *
         sizeof(float);
}

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

void AddSteps(std::string& text, const JobConfig& job, const ModelDescription& model) {
  const uint64_t workers = job.cluster().workers();
  const uint32_t backup = job.consistency().sync().backup();
  // In bounded and async each contribution is a step of its own.
  const uint64_t samples = NominalSamples(job) *
                           (IsClocked(job) ? 1 : LeastCounted(job, static_cast<uint32_t>(workers)));
  absl::StrAppendFormat(&text, "%-20s %d for training, %d for evaluation\n", "samples",
                        model.training_samples, model.test_samples);
  const std::string without = backup == 0 ? "" : absl::StrCat(", ", backup, " of them backup");
  absl::StrAppendFormat(&text, "%-20s %d (%d workers%s, batch %d, accumulate %d)\n",
                        "samples of a step", samples, workers, without, job.data().batch(),
                        job.accumulate());
  absl::StrAppendFormat(&text, "%-20s %d\n", "steps of an epoch",
                        samples == 0 ? 0 : (model.training_samples + samples - 1) / samples);
  absl::StrAppendFormat(&text, "%-20s %d\n", "steps in all",
                        TotalSteps(job, model.training_samples));
}

}  // namespace

absl::StatusOr<std::string> PlanText(const JobConfig& job, const ModelDescription& model) {
  const uint32_t shards = job.cluster().shards();
  const uint32_t workers = job.cluster().workers();
  const auto slices = Place(model.tensors, shards);
  if (!slices.ok()) return slices.status();

  std::string text =
      absl::StrFormat("%-20s 1 coordinator, %d of parley-shard, %d of parley-worker\n", "processes",
                      shards, workers);
  AddSteps(text, job, model);

  uint64_t trained = 0;
  uint64_t values = 0;
  for (const TensorSpec& tensor : model.tensors) {
    values += ByteCount(tensor);
    if (!tensor.buffer()) trained += ElementCount(tensor);
  }
  absl::StrAppendFormat(&text, "%-20s %d in %d tensors; with buffers %s\n", "parameters", trained,
                        model.tensors.size(), BytesText(values));

  // The contributions themselves are needed until the verdict where they are added in an order, or
  // some of them are left out.
  const Sync& sync = job.consistency().sync();
  const uint64_t contributions = sync.deterministic() || sync.backup() > 0 ? workers : 1;
  // Compensating delays needs what each worker has pulled until it has pushed.
  const uint64_t pulled = job.consistency().async().delay_compensation() > 0 ? workers : 0;
  std::vector<ShardMemory> memory(shards);
  std::vector<std::string> rows(shards);
  for (const Slice& slice : *slices) {
    const TensorSpec& tensor = model.tensors[slice.tensor()];
    ShardMemory& shard = memory[slice.shard()];
    const uint64_t bytes = Elements(slice) * ElementBytes(tensor.dtype());
    ++shard.slices;
    shard.values += bytes;
    if (model.test_samples > 0) shard.kept += bytes;
    shard.sums += contributions * bytes;
    if (!tensor.buffer()) shard.pulled += pulled * bytes;
    const uint64_t state = StateBytes(job, tensor, slice);
    shard.state += state;
    if (CheckpointsWhileTraining(job)) shard.checkpoint += bytes + state;
    rows[slice.shard()] += SliceRow(tensor, slice);
  }
  for (uint32_t i = 0; i < shards; ++i) {
    absl::StrAppendFormat(&text, "\nshard %d: %s in slices: %d\n%s", i, BytesText(memory[i].values),
                          memory[i].slices, rows[i]);
  }

  text += "\nmemory for tensors, beside what a process needs anyway\n";
  for (uint32_t i = 0; i < shards; ++i) {
    absl::StrAppendFormat(
        &text,
        "  shard %-4d %10s: two versions %s, open step %s, optimizer %s, evaluation %s, "
        "checkpoint %s\n",
        i, BytesText(memory[i].all()), BytesText(2 * memory[i].values), BytesText(memory[i].sums),
        BytesText(memory[i].state), BytesText(memory[i].kept), BytesText(memory[i].checkpoint));
    if (pulled == 0) continue;
    absl::StrAppendFormat(&text,
                          "  %20s of it %s: what %d workers have pulled (delay_compensation)\n", "",
                          BytesText(memory[i].pulled), workers);
  }
  absl::StrAppendFormat(
      &text, "  each worker %9s: parameters and gradients; activations and data come on top\n",
      BytesText(2 * values));
  return text;
}

}  // namespace parley
