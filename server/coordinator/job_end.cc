#include "server/coordinator/job_end.h"

namespace parley {

std::optional<JobEnd> EndedMeanwhile(const CoordinatorState& last, const std::string& fingerprint,
                                     bool stood_by) {
  if (!last.over() || last.job_fingerprint() != fingerprint) return std::nullopt;
  if (last.phase() == FINISHED) return JobEnd{kFinished, "the job has finished already"};
  if (!stood_by) return std::nullopt;
  // For good, unlike a preemption; no member comes again (deploy/slurm/role).
  if (last.stopped()) return JobEnd{kPreempted, last.cause().text()};
  if (last.cause().preempted()) return std::nullopt;
  return JobEnd{kFailed, last.cause().text()};
}

}  // namespace parley
