#ifndef PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_CHECK_H_
#define PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_CHECK_H_

#include <vector>

#include "absl/status/status.h"
#include "server/pipeline_stage/schedule/schedule.h"

namespace parley {

// Whether a schedule with messages is one of a model with these edges, leaving time and credits to
// Predict: each part takes every microbatch forward once and then backward once, whole or in its
// two halves, on one stage; whatever an action takes is there before it, from the same stage or in
// a message, and each message is sent once and received once; an update comes behind the backward
// of its last microbatch, and none remains that no update has. InvalidArgument, naming the stage
// and the action, for anything else.
absl::Status CheckSchedule(const Schedule& schedule, const std::vector<PartEdge>& edges);

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_CHECK_H_
