#include "server/coordinator/core_options.h"

#include "common/job/job_file.h"

namespace parley {

CoordinatorCore::Options CoreOptions(const JobConfig& job) {
  CoordinatorCore::Options options;
  options.job = job;
  options.fingerprint = JobFingerprint(job);
  options.liveness = Liveness(job);
  options.stall_timeout = StallTimeout(job);
  options.gather_timeout = GatherTimeout(job);
  options.autonomy = Autonomy(job);
  options.checkpoint_period = CheckpointPeriod(job);
  options.preemption_grace = PreemptionGrace(job);
  options.warning_grace = WarningGrace(job);
  return options;
}

}  // namespace parley
