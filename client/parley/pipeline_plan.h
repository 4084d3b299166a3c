#ifndef PARLEY_CLIENT_PARLEY_PIPELINE_PLAN_H_
#define PARLEY_CLIENT_PARLEY_PIPELINE_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/parley/model_description.h"
#include "proto/job.pb.h"
#include "server/pipeline_stage/schedule/prediction.h"
#include "server/pipeline_stage/schedule/schedule.h"

namespace parley {

// What each pipeline of a job does in a step, or in some steps that overlap, and how it goes.
struct PipelinePlan {
  uint32_t steps = 1;
  Schedule schedule;
  // Parts cost what their layers were measured to, for how fast their stages are (half of a
  // backward for the gradient of the input), and messages a hop as measured. Or all parts cost the
  // same, and messages nothing: a forward takes a second, a backward two, and one that computes its
  // forward again (pipeline.recompute) three.
  Prediction prediction;
  bool measured = false;

  // The same for the cut that balances the measured layers, where a step of it takes less.
  struct Balanced {
    std::vector<uint32_t> first_layers;  // of each part, counted in the model
    Prediction prediction;
  };
  std::optional<Balanced> balanced;
  bool balanced_fits = true;  // into the model's stage_memory; else it is not told

  // Of measured ones with the schedule EAGER: the pipeline.forwards_ahead that are worth their
  // memory, and the step with them.
  struct Ahead {
    uint32_t forwards = 0;
    absl::Duration step;
  };
  std::optional<Ahead> ahead;
};

// Of a job with cluster.stages above 0 and its model. InvalidArgument: the description has other
// parts or stages than the job. The codes of ScheduleOf and Predict, with their reasons: such a
// schedule cannot run. ResourceExhausted: a measured model's activations take more than model's
// stage_memory on a stage; of EAGER, with the fewest that it can do with.
absl::StatusOr<PipelinePlan> PlanPipelines(const JobConfig& job, const ModelDescription& model);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_PIPELINE_PLAN_H_
