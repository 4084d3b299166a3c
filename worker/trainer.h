#ifndef PARLEY_WORKER_TRAINER_H_
#define PARLEY_WORKER_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/session.h"
#include "client/torch/module_binding.h"
#include "common/log.h"
#include "proto/job.pb.h"
#include "worker/data/datasets.h"
#include "worker/data/prefetcher.h"
#include "worker/models/network.h"
#include "worker/training_metrics.h"

namespace parley {

// Trains a network through a session that has joined: the loop of a worker, from registering to the
// end of the job. Runs on the thread that calls Run, the training thread. All parts must outlive
// it.
class Trainer {
 public:
  struct Parts {
    const JobConfig& job;
    Network& network;
    const Datasets& data;
    Session& session;
    TrainingMetrics& metrics;
    Log& log;
    // Asked before each step: why this worker has to go ("SIGTERM"), or an empty text. May be empty
    // itself.
    std::function<std::string()> preemption;
  };
  explicit Trainer(const Parts& parts);

  // OK when the job has finished. Otherwise the job has failed, by this worker's doing or
  // another's: the message is the first cause's text (Session::failure has the rest).
  absl::Status Run();

 private:
  absl::Status Train();
  // Until the parameters that its verdict makes have come, or newer ones.
  absl::Status Step(const StepPlan& plan);
  absl::Status Microbatch(const StepPlan& plan, uint64_t microbatch,
                          const std::vector<uint64_t>& samples, bool last, double& loss_sum);
  // Says so in log and metrics where it has, since the last time.
  bool HasGoneBack();
  // Every evaluation that waits for this worker's part.
  absl::Status EvaluateWhatIsDue();
  absl::Status Evaluate(const Session::PendingEvaluation& due);

  const Parts parts_;
  const size_t batch_;
  std::unique_ptr<ModuleBinding> binding_;  // set by Train
  Prefetcher training_data_;
  uint64_t job_epoch_ = 0;
};

// The samples of a step cut into microbatches of at most `batch`.
std::vector<std::vector<uint64_t>> Microbatches(const std::vector<uint64_t>& samples, size_t batch);

}  // namespace parley

#endif  // PARLEY_WORKER_TRAINER_H_
