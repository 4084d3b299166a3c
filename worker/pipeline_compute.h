#ifndef PARLEY_WORKER_PIPELINE_COMPUTE_H_
#define PARLEY_WORKER_PIPELINE_COMPUTE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "client/pipeline/pipeline_links.h"
#include "client/session.h"
#include "common/metrics/metrics.h"
#include "proto/job.pb.h"
#include "server/pipeline_stage/schedule/job_schedule.h"
#include "worker/compute.h"
#include "worker/data/batch.h"
#include "worker/data/datasets.h"
#include "worker/models/pipeline_model.h"
#include "worker/step_batches.h"
#include "worker/training_metrics.h"

namespace parley {

// A worker that has its pipeline's stages compute: it reads the data, gives each microbatch to the
// first stage and its targets to the last one, and gets losses. Activations and gradients never
// come here, nor do parameters. All parts must outlive it.
class PipelineCompute final : public Compute {
 public:
  struct Parts {
    const JobConfig& job;
    const PipelineModel& model;
    const Datasets& data;
    Session& session;
    PipelineLinks& links;
    TrainingMetrics& metrics;
    Metrics& served;
  };
  explicit PipelineCompute(const Parts& parts);

  absl::Status Attach() override;
  size_t steps_ahead() const override {
    return batches_.steps_ahead() + StepsFedAhead(parts_.job) + StepsFedTogether(parts_.job) - 1;
  }
  void Expect(const std::vector<StepPlan>& plans) override;
  absl::StatusOr<Verdict> Step(const StepPlan& plan) override;
  absl::Status Pull(bool /*ahead*/) override { return parts_.session.Pull(); }
  // Not while steps overlap: behind them.
  absl::StatusOr<std::optional<Session::PendingEvaluation>> PullEvaluation() override;
  absl::StatusOr<std::optional<Evaluation>> Evaluate(
      const Session::PendingEvaluation& due) override;

 private:
  // A step, or several that overlap, as the stages were told to do them.
  struct Stretch {
    std::vector<StepPlan> plans;
    uint32_t of_a_step = 1;  // microbatches; the last step can have fewer, or none if it is alone
    std::optional<StageTable> places;  // where there are microbatches
    size_t next = 0;                   // step
    size_t fed = 0;                    // steps whose data are with the stages
    absl::Time begun;                  // the last step ended, or the stretch began
    uint64_t job_epoch = 0, composition = 0;
  };
  // The stretch that begins with this step.
  Stretch StretchFrom(const StepPlan& plan) const;
  absl::Status Begin(const StepPlan& plan);
  // Until all stages have done their part: the sum of losses.
  absl::StatusOr<double> RunStep(const StepPlan& plan);
  absl::Status FeedStep(size_t step);
  absl::StatusOr<Evaluation> RunEvaluation(const Session::PendingEvaluation& due);
  absl::Status Announce(const PipelineWork& work);
  // Where a microbatch's samples and targets go.
  struct Ends {
    uint32_t first_stage = 0;
    uint32_t last_stage = 0;
  };
  absl::Status Feed(const Ends& ends, uint32_t microbatch, const SampleLayout& x,
                    const SampleLayout& y, size_t samples, std::unique_ptr<Batch> batch);
  // Of each microbatch, in order: what the last stage has sent.
  absl::StatusOr<std::vector<double>> Result(uint32_t microbatch, size_t numbers);
  // How long the stages have computed for the step of the stretch, together.
  absl::StatusOr<absl::Duration> AwaitStages(size_t step);
  uint32_t last_part() const { return static_cast<uint32_t>(parts_.model.parts()) - 1; }

  const Parts parts_;
  StepBatches batches_;
  std::optional<Stretch> stretch_;  // that is begun and not ended
  prometheus::Gauge& bubble_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_PIPELINE_COMPUTE_H_
