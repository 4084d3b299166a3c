#include "common/job/job_check.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/job/cluster_check.h"
#include "common/job/consistency.h"
#include "common/job/consistency_check.h"
#include "common/job/field_check.h"
#include "common/job/model_check.h"
#include "common/job/optimizer_check.h"
#include "common/job/own_program.h"
#include "common/job/slurm_check.h"

namespace parley {
namespace {

constexpr uint32_t kMostRestarts = 1'000'000;
constexpr uint32_t kMostThreads = 1024;
constexpr uint32_t kMostBucketKib = 32 << 10;  // half of what may be on its way to a shard

void NameIsRight(FieldCheck& check) {
  const JobConfig& job = check.job();
  bool right = !job.name().empty() && job.name().size() <= 64;
  for (const char c : job.name()) {
    right = right && (absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.');
  }
  check.Require(!job.name().empty(), "name",
                "is missing; give the job a name, such as \"mnist-1\"");
  check.Require(right, "name", "must be 1 to 64 letters, digits, '-', '_' or '.'");
}

void RestartsAreRight(FieldCheck& check) {
  check.Between(0, check.job().max_restarts(), kMostRestarts, "max_restarts");
}

void LengthIsRight(FieldCheck& check) {
  const JobConfig& job = check.job();
  check.Require(job.has_epochs() || job.has_steps(), "epochs",
                "is missing; give epochs or steps, such as epochs: 5");
  check.Require(!job.has_epochs() || !job.has_steps(), "steps",
                "epochs and steps are both given; give one of them");
  check.Require(!job.has_epochs() || job.epochs() > 0, "epochs", "must be at least 1");
  check.Require(!job.has_steps() || job.steps() > 0, "steps", "must be at least 1");
}

void StartIsRight(FieldCheck& check) {
  const JobConfig& job = check.job();
  check.Require(!job.checkpoint().ignore_unexpected() || !job.checkpoint().start_from().empty(),
                "checkpoint.ignore_unexpected",
                "is about the weights that checkpoint.start_from names, and it names none: must be "
                "false or left out");
}

void LossScaleIsRight(FieldCheck& check) {
  const JobConfig& job = check.job();
  const bool float16 = job.precision() == FLOAT16_AUTOCAST;
  check.Require(float16 || !job.has_loss_scale(), "loss_scale",
                "is for precision: FLOAT16_AUTOCAST; leave it out");
  if (!float16) return;
  check.Require(
      job.optimizer().skip_nonfinite(), "optimizer.skip_nonfinite",
      "must be true or left out where precision is FLOAT16_AUTOCAST: gradients that float16 "
      "cannot hold come as infinities");
  const double initial = job.loss_scale().initial();
  int exponent = 0;
  check.Require(std::frexp(initial, &exponent) == 0.5 && initial >= 1 && initial <= 1 << 24,
                "loss_scale.initial", "must be a power of two, 1 to 16777216");
  check.Require(
      job.loss_scale().growth_interval() == 0 || !job.consistency().sync().deterministic(),
      "loss_scale.growth_interval",
      "must be 0 where the job is deterministic: a checkpoint does not have the loss scale, "
      "so that a job that goes on from one would skip other steps");
}

void ComputingIsRight(FieldCheck& check) {
  const JobConfig& job = check.job();
  check.Between(0, job.threads(), kMostThreads, "threads");
  check.Between(1, job.accumulate(), kMostSamples, "accumulate");
  check.Between(1, job.bucket_kib(), kMostBucketKib, "bucket_kib");
  const PipelineSchedule schedule = job.pipeline().schedule();
  check.Require(job.device() == CPU || (schedule != PIPEDREAM && schedule != TWO_BUFFER_WEIGHTS),
                "device",
                "must be CPU where pipeline.schedule is PIPEDREAM or TWO_BUFFER_WEIGHTS: in this "
                "release stages keep several versions of their weights on CPUs only");
  check.Require(job.device() == CPU || !job.consistency().sync().deterministic(), "device",
                "must be CPU where the job is deterministic: LibTorch's kernels for GPUs are not");
  check.Require(!job.cuda_graphs() || job.device() != CPU, "cuda_graphs",
                "must be left out where device is CPU");
  check.Require(!job.cuda_graphs() || !NeedsOwnProgram(job), "cuda_graphs",
                "must be left out where model or data is own: parley-worker records its steps, a "
                "program of one's own may do so by itself");
  check.Require(
      !job.cuda_graphs() || job.cluster().stages() == 0, "cuda_graphs",
      "must be left out where cluster.stages is not 0: what stages do hangs on each other");
  check.Require(Precision_IsValid(job.precision()), "precision",
                "must be FLOAT32, BFLOAT16_AUTOCAST or FLOAT16_AUTOCAST");
  check.Require(job.precision() == FLOAT32 || job.cluster().stages() == 0, "precision",
                "must be FLOAT32 where cluster.stages is not 0: in this release stages compute in "
                "float32");
  LossScaleIsRight(check);
  check.Require(job.gradients_on_wire() == AS_COMPUTED ||
                    job.gradients_on_wire() == WIRE_BFLOAT16 ||
                    job.gradients_on_wire() == WIRE_FLOAT16,
                "gradients_on_wire", "must be AS_COMPUTED, WIRE_BFLOAT16 or WIRE_FLOAT16");
  check.Require(
      job.gradients_on_wire() == AS_COMPUTED || !job.consistency().sync().deterministic(),
      "gradients_on_wire",
      "rounds what goes to other machines, so that the result hangs on where the shards are, but "
      "the job is deterministic: must be AS_COMPUTED or left out");
}

void CheckpointsAreRight(FieldCheck& check) {
  const JobConfig& job = check.job();
  const Checkpoint& checkpoint = job.checkpoint();
  if (!checkpoint.every().empty()) {
    check.DurationIsRight(checkpoint.every(), absl::Seconds(1), absl::Hours(24 * 365),
                          "checkpoint.every");
  }
  check.Require(
      checkpoint.every_steps() == 0 || !IsClocked(job), "checkpoint.every_steps",
      "counts the steps of a sync job; in bounded and async give checkpoint.every, such as "
      "every: \"10m\"");
}

void FilesAreRight(FieldCheck& check) {
  const std::string& board = check.job().tensorboard();
  bool printable = true;
  for (const char c : board) printable = printable && !absl::ascii_iscntrl(c);
  check.Require(printable, "tensorboard", "must name a folder: it has control characters");
  check.Require(!absl::StrContains(board, "://"), "tensorboard",
                absl::StrCat("must be a folder of the file system, not the address ", board));
  const std::string normal = std::filesystem::path(board).lexically_normal().string();
  check.Require(normal != "log" && !absl::StartsWith(normal, "log/"), "tensorboard",
                "must not lie in `log`, where the coordinator keeps its records: choose another "
                "folder, such as tensorboard: \"tensorboard\"");
}

void TimesAreRight(FieldCheck& check) {
  const JobConfig& job = check.job();
  check.DurationIsRight(job.liveness(), absl::Seconds(1), absl::Hours(24), "liveness");
  check.DurationIsRight(job.stall_timeout(), absl::Seconds(1), absl::Hours(24 * 365),
                        "stall_timeout");
  if (job.has_gather_timeout()) {
    check.DurationIsRight(job.gather_timeout(), absl::Seconds(1), absl::Hours(24 * 365),
                          "gather_timeout");
  }
  // A process counts as dead before anybody could see that it gets nowhere.
  absl::Duration liveness;
  absl::Duration stall_timeout;
  check.Require(
      !absl::ParseDuration(job.liveness(), &liveness) ||
          !absl::ParseDuration(job.stall_timeout(), &stall_timeout) || stall_timeout >= liveness,
      "stall_timeout",
      absl::StrCat("must be at least liveness, ", job.liveness(), ", not ", job.stall_timeout()));
  check.DurationIsRight(job.autonomy(), absl::ZeroDuration(), absl::Hours(24 * 7), "autonomy");
  // Within a liveness of its death no coordinator can be replaced: so long its successor waits
  // for an answer of it.
  absl::Duration autonomy;
  check.Require(
      !absl::ParseDuration(job.liveness(), &liveness) ||
          !absl::ParseDuration(job.autonomy(), &autonomy) || autonomy == absl::ZeroDuration() ||
          autonomy >= liveness,
      "autonomy",
      absl::StrCat("must be at least liveness, ", job.liveness(),
                   ", or \"0s\": the job then ends with its coordinator, not ", job.autonomy()));
  check.DurationIsRight(job.preemption_grace(), absl::ZeroDuration(), absl::Hours(24),
                        "preemption_grace");
}

}  // namespace

absl::Status CheckJob(const JobSource& source) {
  FieldCheck check(source);
  // In this order: the first thing that is wrong is what people are told.
  NameIsRight(check);
  CheckModel(check);
  CheckData(check);
  CheckOptimizer(check);
  CheckLearningRate(check);
  CheckConsistency(check);
  CheckMembers(check);
  CheckPipelines(check);
  CheckNodeGroups(check);
  CheckBackup(check);
  CheckUpdateAhead(check);
  CheckLostWorker(check);
  RestartsAreRight(check);
  CheckSlurm(check);
  LengthIsRight(check);
  StartIsRight(check);
  ComputingIsRight(check);
  CheckpointsAreRight(check);
  FilesAreRight(check);
  TimesAreRight(check);
  return check.first();
}

}  // namespace parley
