#ifndef PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_ONE_F_ONE_B_H_
#define PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_ONE_F_ONE_B_H_

#include <cstdint>
#include <vector>

#include "server/pipeline_stage/schedule/schedule.h"

namespace parley {

// One stage's work: some forwards first, then a forward and a backward in turn, at last the
// backwards that remain. forwards, backwards: its own, in their order, as many of each.
std::vector<Action> OneForwardOneBackward(const std::vector<Action>& forwards,
                                          const std::vector<Action>& backwards,
                                          uint64_t forwards_first);

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_ONE_F_ONE_B_H_
