#ifndef PARLEY_WORKER_STEP_RECORD_H_
#define PARLEY_WORKER_STEP_RECORD_H_

#include <cstdint>
#include <optional>

#include "client/session.h"
#include "common/log.h"
#include "worker/late_steps.h"
#include "worker/training_metrics.h"

namespace parley {

// What a training loop leaves of its steps in log and metrics: those that count, those that the job
// has gone on without, and where the job has gone back to a checkpoint. All parts must outlive it.
// The training thread's.
class StepRecord {
 public:
  StepRecord(Session& session, TrainingMetrics& metrics, Log& log)
      : session_(session), metrics_(metrics), log_(log) {}

  // The first step comes: after Register. threads: that LibTorch computes with.
  void Begin(int threads);
  // The step's verdict has come, and the Pull after it has returned.
  void Done(const StepPlan& plan, const Verdict& verdict);
  // Whether the job has gone back since the last call, or Done. A verb other than these may have
  // found it out: an evaluation, or Finish.
  bool HasGoneBack();

 private:
  // rejoined: since it was cut off.
  void NoteMissed(const StepPlan& plan, bool rejoined);

  Session& session_;
  TrainingMetrics& metrics_;
  Log& log_;
  std::optional<uint64_t> job_epoch_;  // none: it has not looked yet
  uint64_t memberships_ = 0;           // as the session had them before the step
  LateSteps late_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_STEP_RECORD_H_
