#include "common/job/consistency_check.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

// bounded and async (docs/clocked.md has the table).
void Clocked(const Consistency& consistency, FieldCheck& check) {
  const JobConfig& job = check.job();
  const bool bounded = consistency.has_bounded();
  const Reduction reduction =
      bounded ? consistency.bounded().reduction() : consistency.async().reduction();
  check.Require(reduction == MEAN || reduction == SUM,
                bounded ? "consistency.bounded.reduction" : "consistency.async.reduction",
                "must be MEAN or SUM");
  check.NotNegative(consistency.async().delay_compensation(),
                    "consistency.async.delay_compensation");
  const auto averages_only = [&](bool asked, const char* field, const char* multiplies) {
    check.Require(
        !asked, field,
        absl::StrCat("multiplies the rate by the ", multiplies,
                     " whose gradients a step averages, but with consistency.",
                     bounded ? "bounded" : "async",
                     " each worker's gradient is applied by itself: must be false or left "
                     "out"));
  };
  averages_only(job.learning_rate().linear_scaling(), "learning_rate.linear_scaling", "workers");
  averages_only(job.learning_rate().elastic(), "learning_rate.elastic", "share of the workers");
}

}  // namespace

void CheckConsistency(FieldCheck& check) {
  const JobConfig& job = check.job();
  const Consistency& consistency = job.consistency();
  if (!consistency.has_sync()) return Clocked(consistency, check);
  const Sync& sync = consistency.sync();
  check.Require(sync.reduction() == MEAN || sync.reduction() == SUM, "consistency.sync.reduction",
                "must be MEAN or SUM");
  check.Require(sync.lost_worker() == GO_ON || sync.lost_worker() == WAIT,
                "consistency.sync.lost_worker", "must be GO_ON or WAIT");
  check.Require(
      !sync.deterministic() || job.threads() > 0, "consistency.sync.deterministic",
      "needs a fixed number of threads of each worker, such as threads: 1, since sums over "
      "another number of threads are other bits");
  check.Require(sync.buffers() == LOWEST_ORDINAL || sync.buffers() == AVERAGE,
                "consistency.sync.buffers", "must be LOWEST_ORDINAL or AVERAGE");
  check.Require(sync.buffers() != AVERAGE || job.cluster().group() <= 1, "consistency.sync.buffers",
                "AVERAGE would leave out all but one of the buffers of each node group: must be "
                "LOWEST_ORDINAL or left out, or cluster.group 1");
  if (!job.learning_rate().elastic()) return;
  check.Require(
      sync.reduction() == MEAN, "learning_rate.elastic",
      "multiplies the rate by the share of the workers whose gradients a step averages, but "
      "with consistency.sync.reduction SUM a step adds them up: must be false or left out");
  check.Require(!sync.deterministic(), "learning_rate.elastic",
                "multiplies the rate by the share of the workers that are left, but "
                "consistency.sync.deterministic goes on with all only: must be false or left out");
}

void CheckBackup(FieldCheck& check) {
  const JobConfig& job = check.job();
  const Sync& sync = job.consistency().sync();
  const uint32_t workers = job.cluster().workers();
  if (sync.backup() == 0) return;
  check.Require(sync.backup() < workers, "consistency.sync.backup",
                absl::StrCat("must be below cluster.workers, ", workers, ", not ", sync.backup(),
                             ": a step counts the others"));
  check.Require(!sync.deterministic(), "consistency.sync.backup",
                "lets the order of arrival decide whose samples a step uses, but the job is "
                "deterministic: must be 0 or left out");
  check.Require(
      sync.lost_worker() != WAIT, "consistency.sync.backup",
      "lets steps go on without a worker, but consistency.sync.lost_worker is WAIT: one of "
      "the two must be left out");
}

void CheckUpdateAhead(FieldCheck& check) {
  const JobConfig& job = check.job();
  if (!job.consistency().sync().update_ahead()) return;
  const std::string path = "consistency.sync.update_ahead";
  check.Require(
      job.consistency().sync().backup() == 0, path,
      "computes a step with all workers' gradients before it is decided, but with "
      "consistency.sync.backup it is decided with fewer: one of the two must be left out");
  check.Require(
      job.optimizer().clip_norm() == 0, path,
      "computes a step before all of its gradients are there, but optimizer.clip_norm scales "
      "it by their norm: one of the two must be left out");
  check.Require(
      !job.optimizer().skip_nonfinite(), path,
      "computes a step before all of its gradients are there, but optimizer.skip_nonfinite "
      "(which float16 needs) looks at them first: one of the two must be left out");
}

void CheckLostWorker(FieldCheck& check) {
  const Cluster& cluster = check.job().cluster();
  const Sync& sync = check.job().consistency().sync();
  check.Require(
      !sync.deterministic() || sync.lost_worker() != GO_ON ||
          cluster.min_workers() == cluster.workers(),
      "consistency.sync.lost_worker",
      absl::StrCat("GO_ON with cluster.min_workers ", cluster.min_workers(), " below ",
                   cluster.workers(),
                   " workers lets steps go on with fewer, whose sums are "
                   "other bits, but the job is deterministic: must be WAIT or left out, or "
                   "cluster.min_workers must be ",
                   cluster.workers(), " or left out"));
}

}  // namespace parley
