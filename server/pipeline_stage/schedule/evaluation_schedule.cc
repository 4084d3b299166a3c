#include "server/pipeline_stage/schedule/evaluation_schedule.h"

#include <algorithm>
#include <utility>

namespace parley {

EvaluationSchedule::EvaluationSchedule(std::vector<uint32_t> parts, uint32_t stages,
                                       uint32_t batches, uint32_t fed)
    : parts_(std::move(parts)),
      group_(parts_.size() > 1 ? stages : 1),
      batches_(batches),
      fed_(fed) {}

EvaluationTurn EvaluationSchedule::operator[](uint64_t index) const {
  const uint64_t of_group = group_ * parts_.size();
  EvaluationTurn turn;
  turn.group = static_cast<uint32_t>(index / of_group) * group_;
  const uint32_t batches = std::min(group_, batches_ - turn.group);
  const auto within = static_cast<uint32_t>(index % of_group);
  turn.part = parts_[within / batches];
  turn.batch = turn.group + within % batches;
  // It would not have come before the results of batches that are so old.
  if (turn.batch >= fed_) turn.first_read = (turn.batch - fed_ + 1) / group_ * group_;
  return turn;
}

}  // namespace parley
