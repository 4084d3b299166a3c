#ifndef PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_INTERLEAVED_H_
#define PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_INTERLEAVED_H_

#include <cstdint>
#include <vector>

#include "server/pipeline_stage/schedule/schedule.h"

namespace parley {

// Microbatches go through a stage's parts in groups: a group through its first part, then through
// its second one. Megatron's groups have one microbatch for each stage, and with a remainder its
// order waits for itself for ever. Ours have at least so many and differ by one at most, the
// larger ones first, so that every number of microbatches works.
std::vector<uint32_t> InterleavedGroups(uint32_t stages, uint32_t microbatches);

// Stage s has parts s, s + stages, ...: `parts_per_stage` of them.
std::vector<std::vector<Action>> Interleaved(uint32_t stages, uint32_t microbatches,
                                             uint32_t parts_per_stage);

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_INTERLEAVED_H_
