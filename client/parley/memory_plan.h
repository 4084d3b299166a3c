#ifndef PARLEY_CLIENT_PARLEY_MEMORY_PLAN_H_
#define PARLEY_CLIENT_PARLEY_MEMORY_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "client/parley/model_description.h"
#include "proto/job.pb.h"
#include "proto/types.pb.h"

namespace parley {

// What the tensors of one shard take, in bytes, once it trains (docs/memory.md says why).
struct ShardMemory {
  uint64_t slices = 0;
  uint64_t values = 0;      // the newest version
  uint64_t evaluation = 0;  // the version that is evaluated
  uint64_t readers = 0;     // versions that workers read while others are applied
  uint64_t state = 0;       // of the optimizer
  uint64_t checkpoint = 0;  // values and state of the version that is being written
  uint64_t ahead = 0;       // values and state of the open step, before it is decided
  // Gradients of the open step: of workers that lend theirs through shared memory, and of workers
  // on other machines.
  uint64_t step_here = 0;
  uint64_t step_remote = 0;

  uint64_t without_step() const {
    return values + evaluation + readers + state + checkpoint + ahead;
  }
  uint64_t here() const { return without_step() + step_here; }
  uint64_t remote() const { return without_step() + step_remote; }
};

// By shard. `slices`: of the model's tensors, as Place gives them.
std::vector<ShardMemory> PlanShards(const JobConfig& job, const ModelDescription& model,
                                    absl::Span<const Slice> slices);

// What the tensors of one process that computes take, in bytes: gradients, the largest gradient
// once more, as backward makes it, and parameters. It is a worker, with those of the whole model,
// or where the job has pipelines a stage, with its own: then workers have none.
struct ComputeMemory {
  std::optional<uint32_t> stage;  // of each pipeline: the one that takes most
  uint64_t stashed = 0;           // copies of weights or gradients, for steps that overlap
  uint64_t here = 0;              // all shards are on its machine and show it theirs
  uint64_t remote = 0;            // none is
  uint64_t starting = 0;          // until its first pull, where the job starts from nothing
};
ComputeMemory PlanCompute(const JobConfig& job, const ModelDescription& model,
                          absl::Span<const Slice> slices);

// Both as lines, each ended.
std::string MemoryText(absl::Span<const ShardMemory> shards, const ComputeMemory& compute);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_MEMORY_PLAN_H_
