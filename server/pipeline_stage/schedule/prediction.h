#ifndef PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_PREDICTION_H_
#define PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_PREDICTION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/pipeline_stage/schedule/schedule.h"

namespace parley {

// What one microbatch costs in one part.
struct PartCost {
  absl::Duration forward, input_gradient, weight_gradient;  // a whole backward: both gradients
  uint64_t activation_bytes = 0;  // kept from its forward to the end of its backward
  // Where forwards are computed again: of that, from the beginning of its backward to the end.
  uint64_t again_bytes = 0;
  uint64_t output_bytes = 0;  // that the next part gets; its gradient has as many
};

// Stands for any number of credits.
inline constexpr uint32_t kUnlimited = UINT32_MAX;

struct PipelineCosts {
  std::vector<PartCost> parts;  // one for each
  absl::Duration hop;           // from the end of a send to where it can be received
  // So many messages of an edge between two parts, in each direction, may be sent and not yet
  // received. 0: a send waits for its receive.
  uint32_t credits = kUnlimited;
  // What the first part is given of a microbatch; so many of them lie there at most, or wait for
  // their backward (kUnlimited: all), since nobody waits with sending them.
  uint64_t input_bytes = 0;
  uint32_t inputs = kUnlimited;
  // A step's forwards wait until all stages have done the updates of the step before the last
  // `delay` ones (DelayOf), in no time. nullopt: all is one step.
  std::optional<uint32_t> delay;
};

struct TimedAction {
  Action action;
  absl::Duration begin, end;  // since the start of the step
};

struct StagePrediction {
  std::vector<TimedAction> timeline;  // what computes, in order
  absl::Duration busy;
  uint32_t peak_activations = 0;  // microbatches kept at once, counted in each part
  // Those activations, inputs, and room for as many messages as may come.
  uint64_t peak_bytes = 0;
};

struct Prediction {
  absl::Duration makespan;
  double bubble = 0;  // 1 - busy / (stages * makespan), the only one that we know
  std::vector<StagePrediction> stages;
};

// Plays the schedule through: each stage does its actions in order, a receive waits for its
// message, a send for a credit; nothing else takes time. Without the pull before the step and the
// push after it. InvalidArgument: not a cost for each part, or a time that is negative.
// FailedPrecondition: the stages wait for each other for ever; the message has the action that each
// of them waits in. The schedule passes CheckSchedule.
absl::StatusOr<Prediction> Predict(const Schedule& schedule, const PipelineCosts& costs);

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_PREDICTION_H_
