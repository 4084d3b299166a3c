#include "server/pipeline_stage/schedule/interleaved.h"

#include <algorithm>

#include "server/pipeline_stage/schedule/one_f_one_b.h"

namespace parley {

std::vector<uint32_t> InterleavedGroups(uint32_t stages, uint32_t microbatches) {
  const uint32_t groups = std::max<uint32_t>(1, microbatches / stages);
  const uint32_t larger = microbatches % groups;
  std::vector<uint32_t> sizes(groups, microbatches / groups);
  std::for_each(sizes.begin(), sizes.begin() + larger, [](uint32_t& size) { size += 1; });
  return sizes;
}

std::vector<std::vector<Action>> Interleaved(uint32_t stages, uint32_t microbatches,
                                             uint32_t parts_per_stage) {
  const std::vector<uint32_t> groups = InterleavedGroups(stages, microbatches);
  std::vector<std::vector<Action>> schedule;
  for (uint32_t stage = 0; stage < stages; ++stage) {
    std::vector<Action> forwards, backwards;
    uint32_t first = 0;
    for (uint32_t size : groups) {
      for (uint32_t turn = 0; turn < parts_per_stage; ++turn) {
        const uint32_t back = parts_per_stage - 1 - turn;
        for (uint32_t k = first; k < first + size; ++k) {
          forwards.push_back({ActionKind::kForward, turn * stages + stage, k});
          backwards.push_back({ActionKind::kBackward, back * stages + stage, k});
        }
      }
      first += size;
    }
    // The first backward of a stage comes when its first group has gone through all of its parts,
    // and through the stages behind it and back. With one part that is plain 1F1B.
    const uint64_t behind = stages - 1 - stage;
    const uint64_t ahead =
        parts_per_stage == 1 ? behind : 2 * behind + uint64_t{parts_per_stage - 1} * groups[0];
    schedule.push_back(OneForwardOneBackward(forwards, backwards, ahead));
  }
  return schedule;
}

}  // namespace parley
