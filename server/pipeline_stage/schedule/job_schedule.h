#ifndef PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_JOB_SCHEDULE_H_
#define PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_JOB_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "server/pipeline_stage/schedule/partition.h"
#include "server/pipeline_stage/schedule/schedule.h"
#include "server/pipeline_stage/schedule/schedules.h"

namespace parley {

// What the job file asks for, for a step of so many microbatches, or for several steps that
// overlap.
ScheduleSpec SpecOf(const JobConfig& job, uint32_t microbatches);

// How many steps old the weights are that the job's steps are computed with; nullopt where steps do
// not overlap.
std::optional<uint32_t> DelayOf(const JobConfig& job);

// Where steps overlap a worker sends the stages the data of so many steps beyond the one that it
// waits for, and then of so many in a row; else 0 and 1.
uint32_t StepsFedAhead(const JobConfig& job);
uint32_t StepsFedTogether(const JobConfig& job);

// The job's schedule, with messages between parts one behind the other. All processes of a pipeline
// make it for themselves; it has passed CheckSchedule. The codes of MakeSchedule.
absl::StatusOr<Schedule> ScheduleOf(const JobConfig& job, uint32_t microbatches);

// Where each part of the model runs: how fast its stage is. In CHIMERA two stages have a part, and
// the slower one counts.
std::vector<PartPlace> PlacesOf(const JobConfig& job);

// Where a schedule's microbatches are computed.
class StageTable {
 public:
  explicit StageTable(const Schedule& schedule);
  // The stage that does the forward of a microbatch in a part, and its backward.
  uint32_t StageOf(uint32_t part, uint32_t microbatch) const {
    return stages_[size_t{part} * microbatches_ + microbatch];
  }

 private:
  uint32_t microbatches_;
  std::vector<uint32_t> stages_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_JOB_SCHEDULE_H_
