#ifndef PARLEY_WORKER_TRAINER_H_
#define PARLEY_WORKER_TRAINER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "client/session.h"
#include "common/log.h"
#include "proto/job.pb.h"
#include "worker/compute.h"
#include "worker/step_record.h"
#include "worker/training_metrics.h"

namespace parley {

// The loop of a worker whose session has joined, from registering to the end of the job. Runs on
// the thread that calls Run, the training thread. All parts must outlive it.
class Trainer {
 public:
  struct Parts {
    const JobConfig& job;
    Compute& compute;
    Session& session;
    TrainingMetrics& metrics;
    Log& log;
    // Asked before each step: why this worker has to go ("SIGTERM"), or an empty text. May be empty
    // itself.
    std::function<std::string()> preemption;
  };
  explicit Trainer(const Parts& parts)
      : parts_(parts), steps_(parts.session, parts.metrics, parts.log) {}

  // As EndTraining says.
  absl::Status Run();

 private:
  absl::Status Train();
  // Until the parameters that its verdict makes have come, or newer ones.
  absl::Status Step(const StepPlan& plan);
  // Every evaluation that waits for this worker's part.
  absl::Status EvaluateWhatIsDue();
  absl::Status Evaluate(const Session::PendingEvaluation& due);

  const Parts parts_;
  StepRecord steps_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_TRAINER_H_
