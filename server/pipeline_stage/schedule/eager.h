#ifndef PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_EAGER_H_
#define PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_EAGER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/pipeline_stage/schedule/prediction.h"

namespace parley {

// ScheduleSpec::forwards_ahead of kEagerOneFOneB for these costs: the smallest that makes the step
// as short as it becomes, where no stage may keep more than memory_bytes (0: no limit). 1F1B waits
// for every hop twice a microbatch; forwards ahead hide that, and each costs the activations of a
// microbatch. InvalidArgument as MakeSchedule and Predict; ResourceExhausted where plain 1F1B does
// not fit either.
absl::StatusOr<uint32_t> ForwardsAhead(uint32_t stages, uint32_t microbatches,
                                       const PipelineCosts& costs, uint64_t memory_bytes);

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_EAGER_H_
