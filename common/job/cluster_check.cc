#include "common/job/cluster_check.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/job/contributor_places.h"
#include "common/job/own_program.h"

namespace parley {

void CheckMembers(FieldCheck& check) {
  const Cluster& cluster = check.job().cluster();
  check.Between(1, cluster.workers(), kMostMembers, "cluster.workers");
  check.Between(1, cluster.shards(), kMostMembers, "cluster.shards");
  check.Between(1, cluster.min_workers(), cluster.workers(), "cluster.min_workers");
}

void CheckPipelines(FieldCheck& check) {
  const JobConfig& job = check.job();
  const uint32_t stages = job.cluster().stages();
  if (stages == 0) {
    check.Require(!job.has_pipeline(), "pipeline",
                  "is of jobs with stages: must be left out, or cluster.stages must be above 0");
    return;
  }
  check.Between(1, stages, kMostMembers / std::max(1U, job.cluster().workers()), "cluster.stages");
  check.Require(job.cluster().min_workers() == job.cluster().workers(), "cluster.min_workers",
                "must be cluster.workers or left out: a pipeline that has lost a process waits for "
                "another one");
  check.Require(!job.model().has_torchscript() && !job.model().has_own(), "cluster.stages",
                "must be 0 or left out: a model of one's own cannot be cut into stages");
  const Consistency& consistency = job.consistency();
  check.Require(consistency.has_sync(), "consistency",
                "must be sync where cluster.stages is not 0");
  check.Require(consistency.sync().backup() == 0, "consistency.sync.backup",
                "must be 0 or left out where cluster.stages is not 0");
  check.Require(
      consistency.sync().lost_worker() != GO_ON, "consistency.sync.lost_worker",
      "must be WAIT or left out where cluster.stages is not 0: a pipeline that has lost a "
      "process waits for another one");
  const Pipeline& pipeline = job.pipeline();
  const uint32_t parts = pipeline.parts_per_stage();
  check.Require(
      PipelineSchedule_IsValid(pipeline.schedule()), "pipeline.schedule",
      "must be GPIPE, ONE_F_ONE_B, EAGER, INTERLEAVED, ZERO_BUBBLE, CHIMERA, PIPEDREAM or "
      "TWO_BUFFER_WEIGHTS");
  check.Require(
      pipeline.schedule() != PIPEDREAM || job.accumulate() == 1, "accumulate",
      "must be 1 or left out where pipeline.schedule is PIPEDREAM: each microbatch is a step");
  check.Require(
      pipeline.schedule() != TWO_BUFFER_WEIGHTS || job.accumulate() >= stages, "accumulate",
      absl::StrCat("must be at least cluster.stages, ", stages,
                   ", where pipeline.schedule is TWO_BUFFER_WEIGHTS: with fewer microbatches "
                   "in a step a forward waits for weights that its own step makes"));
  if (pipeline.schedule() == INTERLEAVED) {
    check.Between(2, parts, 64, "pipeline.parts_per_stage");
  } else {
    check.Require(parts == 1, "pipeline.parts_per_stage",
                  "must be 1 or left out, unless pipeline.schedule is INTERLEAVED");
  }
  check.Require(!pipeline.has_forwards_ahead() || pipeline.schedule() == EAGER,
                "pipeline.forwards_ahead", "is of the schedule EAGER: must be left out");
  const auto cuts = static_cast<uint64_t>(pipeline.cut_before_size());
  check.Require(cuts == 0 || cuts + 1 == uint64_t{stages} * parts, "pipeline.cut_before",
                absl::StrCat("must name ", uint64_t{stages} * parts - 1, " layers, not ", cuts,
                             ": one for each part but the first"));
  const auto speeds = static_cast<uint32_t>(pipeline.stage_speed_size());
  check.Require(speeds == 0 || speeds == stages, "pipeline.stage_speed",
                absl::StrCat("must have ", stages, " numbers, one for each stage, not ", speeds));
  for (const double speed : pipeline.stage_speed()) {
    check.Require(speed >= 1e-3 && speed <= 1e3, "pipeline.stage_speed",
                  absl::StrCat("must be at least 0.001 and at most 1000, not ", speed));
  }
}

void CheckNodeGroups(FieldCheck& check) {
  const JobConfig& job = check.job();
  const Cluster& cluster = job.cluster();
  check.Between(1, cluster.group(), cluster.workers(), "cluster.group");
  check.Require(GroupReduction_IsValid(cluster.group_reduction()), "cluster.group_reduction",
                "must be ON_HOST or ON_GPUS");
  check.Require(cluster.group_reduction() != ON_GPUS || job.device() == CUDA,
                "cluster.group_reduction", "must be ON_HOST or left out unless device is CUDA");
  check.Require(cluster.group_reduction() != ON_GPUS || !NeedsOwnProgram(job),
                "cluster.group_reduction",
                "must be ON_HOST or left out where model or data is own: in this release only "
                "parley-worker adds up on GPUs");
  check.Require(cluster.group_reduction() != ON_GPUS || cluster.group() > 1,
                "cluster.group_reduction",
                "must be left out where cluster.group is 1: there is nothing to add up");
  if (cluster.group() <= 1) return;
  check.Require(cluster.workers() % cluster.group() == 0, "cluster.group",
                absl::StrCat("must divide cluster.workers, ", cluster.workers(), ", which ",
                             cluster.group(), " does not: all node groups have as many workers"));
  check.Require(cluster.stages() == 0, "cluster.group",
                "must be 1 or left out where cluster.stages is not 0: a pipeline has one worker");
  check.Require(
      cluster.min_workers() == cluster.workers(), "cluster.min_workers",
      "must be cluster.workers or left out where cluster.group is above 1: a node group that "
      "has lost a worker waits for another one");
  const Consistency& consistency = job.consistency();
  check.Require(consistency.has_sync(), "consistency",
                "must be sync where cluster.group is above 1");
  check.Require(consistency.sync().backup() == 0, "consistency.sync.backup",
                "must be 0 or left out where cluster.group is above 1");
  check.Require(
      consistency.sync().lost_worker() != GO_ON, "consistency.sync.lost_worker",
      "must be WAIT or left out where cluster.group is above 1: a node group that has lost a "
      "worker waits for another one");
}

}  // namespace parley
