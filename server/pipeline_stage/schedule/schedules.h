#ifndef PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_SCHEDULES_H_
#define PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_SCHEDULES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/pipeline_stage/schedule/schedule.h"

namespace parley {

// The known schedules. D is the number of stages, N that of microbatches. docs/schedules.md has
// their bubbles and what each keeps in memory.
enum class ScheduleKind : uint8_t {
  kGpipe,            // all forwards, then all backwards (Huang et al. 2018)
  kOneFOneB,         // as few microbatches under way as fill the pipeline (PipeDream-flush, DAPPLE)
  kEagerOneFOneB,    // 1F1B with more forwards ahead, for links that take their time
  kInterleaved,      // each stage has several parts, D apart (Narayanan et al. 2021)
  kZeroBubble,       // ZB-H1: weight gradients fill the holes of 1F1B (Qi et al. 2023)
  kChimera,          // two pipelines in opposite directions (Li and Hoefler 2021)
  kPipeDream,        // asynchronous, an update after each microbatch (Narayanan et al. 2019)
  kTwoBufferWeights  // PipeDream-2BW: asynchronous, an update for each `accumulate` microbatches
};

// "gpipe", "1f1b", "eager", "interleaved", "zb-h1", "chimera", "pipedream", "2bw".
absl::string_view NameOf(ScheduleKind kind);
const std::vector<ScheduleKind>& AllSchedules();

struct ScheduleSpec {
  ScheduleKind kind = ScheduleKind::kOneFOneB;
  uint32_t stages = 1;
  uint32_t microbatches = 1;
  // kInterleaved: parts on each stage. Stage s has parts s, s + D, s + 2D ...
  uint32_t parts_per_stage = 1;
  // kEagerOneFOneB: forwards ahead of those of 1F1B, at most D - 1 - s on stage s. D - 1 and more:
  // twice as many as 1F1B.
  uint32_t forwards_ahead = UINT32_MAX;
  // kTwoBufferWeights: microbatches of an update.
  uint32_t accumulate = 1;
};

// The order of work on each stage, and the updates; the messages are WithMessages's. In Chimera
// stage s has part s for the first half of the microbatches and part D - 1 - s for the others.
// InvalidArgument: a number is 0, parts_per_stage is not 1 where the kind has no such thing, or
// there are more parts than kMostParts, or more microbatches in all of them than kMostWork.
inline constexpr uint64_t kMostParts = 4096, kMostWork = 1 << 19;
absl::StatusOr<Schedule> MakeSchedule(const ScheduleSpec& spec);

// So many messages that are not yet taken each edge between two parts must hold: with them a
// schedule takes no longer, on links without latency, than with any number. With none all but GPipe
// stand still for ever.
uint32_t CreditsNeeded(const ScheduleSpec& spec);

// How many steps old the weights are that a microbatch is computed with: step t's, of an update
// each, have those that step t - 1 - DelayOf has made. nullopt: steps do not overlap. PipeDream's
// is one more than its first stage has there, so that the way to the parameter shards and back
// hides behind a microbatch.
std::optional<uint32_t> DelayOf(const ScheduleSpec& spec);
// Copies of its tensors that a stage keeps then at most, beside the session's: delay + 1 versions
// of its weights, since the next one comes while the oldest is computed with, and the gradients of
// the step that is computed. Gradients that are still to be sent are there in place of the versions
// that they will make.
constexpr uint32_t StashedCopies(uint32_t delay) { return delay + 2; }

// With a send after what makes a tensor and a receive before what takes it, for each edge between
// two parts that are on different stages. Edges go from a part of the schedule to a later one.
Schedule WithMessages(const Schedule& schedule, const std::vector<PartEdge>& edges);

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_SCHEDULES_H_
