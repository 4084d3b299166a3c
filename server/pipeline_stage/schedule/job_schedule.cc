#include "server/pipeline_stage/schedule/job_schedule.h"

#include <algorithm>
#include <vector>

#include "server/pipeline_stage/schedule/check.h"

namespace parley {
namespace {

// Of steps that overlap so many microbatches are sent in a row. The first message after a rest
// finds cold caches and wakes the stage's thread: one alone costs the driver three times as much.
constexpr uint32_t kFedTogether = 4;

ScheduleKind KindOf(PipelineSchedule schedule) {
  switch (schedule) {
    case GPIPE:
      return ScheduleKind::kGpipe;
    case EAGER:
      return ScheduleKind::kEagerOneFOneB;
    case INTERLEAVED:
      return ScheduleKind::kInterleaved;
    case ZERO_BUBBLE:
      return ScheduleKind::kZeroBubble;
    case CHIMERA:
      return ScheduleKind::kChimera;
    case PIPEDREAM:
      return ScheduleKind::kPipeDream;
    case TWO_BUFFER_WEIGHTS:
      return ScheduleKind::kTwoBufferWeights;
    default:
      return ScheduleKind::kOneFOneB;
  }
}

}  // namespace

ScheduleSpec SpecOf(const JobConfig& job, uint32_t microbatches) {
  ScheduleSpec spec;
  spec.kind = KindOf(job.pipeline().schedule());
  spec.stages = job.cluster().stages();
  spec.microbatches = microbatches;
  spec.parts_per_stage = std::max(1U, job.pipeline().parts_per_stage());
  spec.accumulate = std::max(1U, job.accumulate());
  if (job.pipeline().has_forwards_ahead()) spec.forwards_ahead = job.pipeline().forwards_ahead();
  return spec;
}

std::optional<uint32_t> DelayOf(const JobConfig& job) { return DelayOf(SpecOf(job, 1)); }

uint32_t StepsFedAhead(const JobConfig& job) {
  const std::optional<uint32_t> delay = DelayOf(job);
  // So many are computed before the stages wait for weights, and one more lies ready.
  return delay.has_value() ? *delay + 1 : 0;
}

uint32_t StepsFedTogether(const JobConfig& job) {
  if (!DelayOf(job).has_value()) return 1;
  return std::max(kFedTogether / std::max(job.accumulate(), 1U), 1U);
}

absl::StatusOr<Schedule> ScheduleOf(const JobConfig& job, uint32_t microbatches) {
  const absl::StatusOr<Schedule> made = MakeSchedule(SpecOf(job, microbatches));
  if (!made.ok()) return made.status();
  const std::vector<PartEdge> edges = ChainOf(made->parts);
  Schedule schedule = WithMessages(*made, edges);
  if (absl::Status right = CheckSchedule(schedule, edges); !right.ok()) return right;
  return schedule;
}

std::vector<PartPlace> PlacesOf(const JobConfig& job) {
  const uint32_t stages = job.cluster().stages();
  const auto& speeds = job.pipeline().stage_speed();
  std::vector<PartPlace> places(size_t{stages} * std::max(1U, job.pipeline().parts_per_stage()));
  if (static_cast<uint32_t>(speeds.size()) != stages) return places;
  for (uint32_t part = 0; part < places.size(); ++part) {
    const auto stage = static_cast<int>(part % stages);
    places[part].speed = speeds[stage];
    if (job.pipeline().schedule() == CHIMERA) {
      places[part].speed = std::min(speeds[stage], speeds[static_cast<int>(stages) - 1 - stage]);
    }
  }
  return places;
}

StageTable::StageTable(const Schedule& schedule)
    : microbatches_(schedule.microbatches),
      stages_(size_t{schedule.parts} * schedule.microbatches, 0) {
  for (uint32_t stage = 0; stage < schedule.stages.size(); ++stage) {
    for (const Action& action : schedule.stages[stage]) {
      if (action.kind != ActionKind::kForward) continue;
      stages_[size_t{action.part} * microbatches_ + action.microbatch] = stage;
    }
  }
}

}  // namespace parley
