#ifndef PARLEY_SERVER_PIPELINE_STAGE_STAGE_H_
#define PARLEY_SERVER_PIPELINE_STAGE_STAGE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/pipeline/pipeline_links.h"
#include "client/session.h"
#include "common/log.h"
#include "common/metrics/metrics.h"
#include "proto/job.pb.h"
#include "server/pipeline_stage/schedule/evaluation_schedule.h"
#include "server/pipeline_stage/schedule/job_schedule.h"
#include "server/pipeline_stage/schedule/schedule.h"
#include "server/pipeline_stage/stage_compute.h"
#include "server/pipeline_stage/weight_stash.h"
#include "worker/training_metrics.h"

namespace parley {

// A stage's loop, from registering to the end of the job: does what the worker of its pipeline says
// comes next, a step (or several that overlap) or an evaluation, each action in the order of the
// schedule, whatever the order in which messages come. Its session is like a worker's: it pulls the
// parameters of its parts before a step and pushes their gradients behind it. What a step that has
// lost a process has come to is dropped, and the step begun anew when another one has come. Runs on
// the thread that calls Run, the training thread. All parts must outlive it.
class Stage {
 public:
  struct Parts {
    const JobConfig& job;
    StageCompute& compute;
    uint64_t training_samples = 0;
    uint64_t test_samples = 0;
    Session& session;
    PipelineLinks& links;
    TrainingMetrics& metrics;
    Metrics& served;
    Log& log;
  };
  explicit Stage(const Parts& parts);

  // As Trainer::Run.
  absl::Status Run();

 private:
  absl::Status Train();
  // With the other stages of this composition: which of them can take tensors from this one's
  // device.
  absl::Status MeetPeers();
  // What the worker says comes next. OutOfRange: the job has finished.
  absl::StatusOr<PipelineWork> NextWork();
  absl::Status Do(const PipelineWork& work);
  // One step, or several that overlap.
  struct Stretch {
    std::vector<StepPlan> plans;
    uint32_t of_a_step = 1;  // microbatches; the last one can have fewer
    Schedule schedule;
    StageTable places;
    WeightStash* stash = nullptr;  // where they overlap
  };
  // Until the last verdict.
  absl::Status Step(const PipelineWork& work);
  absl::Status OverlappingSteps(const PipelineWork& work, const std::vector<StepPlan>& plans);
  absl::Status RunSchedule(const Stretch& stretch);
  absl::Status RunAction(const Stretch& stretch, const Action& action);
  absl::Status Forward(const Stretch& stretch, const Action& action);
  absl::Status Update(const Stretch& stretch, const Action& action);
  // Those that the microbatch is computed with, in place.
  static absl::Status UseWeights(const Stretch& stretch, uint32_t microbatch);
  absl::Status EvaluateVersion(const PipelineWork& work);
  absl::Status Evaluate(const EvaluationTurn& turn);

  // Tensors that another process sends, where the parts compute; one at least.
  absl::StatusOr<LayerFlow> Receive(PipelineKind kind, uint32_t part, uint32_t microbatch);
  absl::Status Send(uint32_t stage, PipelineKind kind, uint32_t part, uint32_t microbatch,
                    LayerFlow tensors);
  absl::Status TellWorker(PipelineKind kind, uint32_t part, uint32_t microbatch,
                          std::vector<double> numbers);
  absl::Status TellDone(uint32_t step);  // of the unit, from 0
  uint32_t stage() const { return parts_.links.pipeline().part - 1; }
  void Show();

  const Parts parts_;
  // Received, not used yet: activations and gradients by part and microbatch.
  std::map<std::pair<uint32_t, uint32_t>, LayerFlow> activations_;
  std::map<std::pair<uint32_t, uint32_t>, LayerFlow> gradients_;
  std::pair<uint64_t, uint64_t> met_ = {};  // job_epoch and composition of peers_
  std::vector<bool> peers_;                 // by stage
  prometheus::Gauge& references_;
  prometheus::Gauge& activation_bytes_;
  prometheus::Counter& direct_calls_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_STAGE_H_
