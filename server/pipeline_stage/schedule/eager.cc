#include "server/pipeline_stage/schedule/eager.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/pipeline_stage/schedule/schedules.h"

namespace parley {

absl::StatusOr<uint32_t> ForwardsAhead(uint32_t stages, uint32_t microbatches,
                                       const PipelineCosts& costs, uint64_t memory_bytes) {
  std::optional<uint32_t> best;
  absl::Duration shortest;
  uint64_t least = 0;
  for (uint32_t ahead = 0; ahead < std::max<uint32_t>(stages, 1); ++ahead) {
    const absl::StatusOr<Schedule> order = MakeSchedule(
        {ScheduleKind::kEagerOneFOneB, stages, microbatches, /*parts_per_stage=*/1, ahead});
    if (!order.ok()) return order.status();
    const absl::StatusOr<Prediction> played =
        Predict(WithMessages(*order, ChainOf(order->parts)), costs);
    if (!played.ok()) return played.status();
    uint64_t bytes = 0;
    for (const StagePrediction& stage : played->stages) bytes = std::max(bytes, stage.peak_bytes);
    if (ahead == 0) least = bytes;
    if (memory_bytes != 0 && bytes > memory_bytes) continue;
    if (best.has_value() && played->makespan >= shortest) continue;
    best = ahead;
    shortest = played->makespan;
  }
  if (!best.has_value()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("1F1B keeps ", least, " bytes on one stage; ", memory_bytes, " are allowed"));
  }
  return *best;
}

}  // namespace parley
