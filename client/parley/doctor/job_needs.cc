#include "client/parley/doctor/job_needs.h"

#include <algorithm>

#include "client/parley/memory_plan.h"
#include "server/coordinator/placement.h"

namespace parley {
namespace {

// What processes need beside tensors (docs/memory.md).
constexpr uint64_t kServer = uint64_t{10} << 20;
constexpr uint64_t kComputing = uint64_t{350} << 20;
// Addresses that a process reserves beside what it uses: libraries, gRPC's and the allocator's
// pools, threads' stacks. A worker with LibTorch was seen to take half of it.
constexpr uint64_t kAddresses = uint64_t{4} << 30;
// Servers, timers, gRPC's pollers and links of a process, beside those that compute.
constexpr uint64_t kThreads = 32;
// Files that a process has open beside its connections, and connections to one peer: two of gRPC,
// one direct, one local with the files that come over it.
constexpr uint64_t kFiles = 256;
constexpr uint64_t kFilesOfAPeer = 8;
// Mappings of a process that knows nobody: libraries, stacks, pools.
constexpr uint64_t kMappings = 4096;

void AddTensors(const JobConfig& job, const ModelDescription& model, JobNeeds& needs) {
  const auto slices = Place(model.tensors, job.cluster().shards());
  if (!slices.ok()) return;
  const std::vector<ShardMemory> shards = PlanShards(job, model, *slices);
  const ComputeMemory compute = PlanCompute(job, model, *slices);
  const uint64_t computing = job.cluster().workers() * std::max(1U, job.cluster().stages());
  uint64_t all = computing * std::max(compute.here, compute.starting);
  uint64_t most = std::max(compute.remote, compute.starting) + kComputing;
  for (const ShardMemory& shard : shards) {
    all += shard.here();
    most = std::max(most, shard.remote() + kServer);
    needs.checkpoint += shard.values + shard.state;
    needs.largest_file = std::max(needs.largest_file, shard.values + shard.state);
  }
  needs.memory = needs.all_here ? needs.memory + all : most;
  needs.largest_process += most;
  needs.mappings += slices->size();
  const bool keeps_all = job.checkpoint().keep_last() == 0;
  needs.checkpoints = keeps_all ? 2 : job.checkpoint().keep_last() + 1;
  const bool once = job.checkpoint().every_steps() == 0 && job.checkpoint().every().empty() &&
                    job.max_restarts() == 0;
  if (once) needs.checkpoints = 1;
}

}  // namespace

JobNeeds NeedsOf(const JobConfig& job, const ModelDescription* model, bool all_here) {
  const Cluster& cluster = job.cluster();
  const uint64_t stages = uint64_t{cluster.workers()} * cluster.stages();
  const uint64_t members = uint64_t{cluster.workers()} + cluster.shards() + stages;
  // With pipelines the stages compute.
  const uint64_t computing = stages != 0 ? stages : cluster.workers();
  const uint64_t with_libtorch = cluster.workers() + stages;
  JobNeeds needs;
  needs.all_here = all_here;
  needs.processes = all_here ? 1 + members : 1;
  needs.computing = all_here ? computing : 1;
  needs.compute_threads = needs.computing * job.threads();
  needs.threads = needs.processes * kThreads + needs.compute_threads;
  needs.peers = members;
  needs.open_files = kFiles + kFilesOfAPeer * members;
  needs.memory =
      all_here ? with_libtorch * kComputing + (1 + cluster.shards()) * kServer : kComputing;
  needs.largest_process = kAddresses;
  needs.mappings = kMappings;
  if (model != nullptr) AddTensors(job, *model, needs);
  return needs;
}

JobNeeds NeedsOfSmallJob(bool all_here) {
  JobConfig job;
  job.mutable_cluster()->set_workers(1);
  job.mutable_cluster()->set_shards(1);
  return NeedsOf(job, nullptr, all_here);
}

}  // namespace parley
