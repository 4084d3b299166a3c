#ifndef PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_CHIMERA_H_
#define PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_CHIMERA_H_

#include <cstdint>
#include <vector>

#include "server/pipeline_stage/schedule/schedule.h"

namespace parley {

// The first half of the microbatches (the larger one of an odd number) goes down the stages, the
// other half up. Which of the two a stage takes next is found by going through time once with
// backwards that take twice as long as forwards: what can begin and keeps memory as small as
// 1F1B's, a forward first. With as many microbatches as stages that is the paper's schedule; with
// more its order has shorter bubbles than the paper's, which puts several of the small ones behind
// one another.
std::vector<std::vector<Action>> Chimera(uint32_t stages, uint32_t microbatches);

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_CHIMERA_H_
