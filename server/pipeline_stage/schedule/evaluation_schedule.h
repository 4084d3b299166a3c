#ifndef PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_EVALUATION_SCHEDULE_H_
#define PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_EVALUATION_SCHEDULE_H_

#include <cstdint>
#include <vector>

namespace parley {

// What a stage does next in an evaluation: one of its parts, of one batch.
struct EvaluationTurn {
  uint32_t part = 0;
  uint32_t batch = 0;
  // Of its group. What is sent in turns of a group is of one time for whoever reads it; of those
  // groups whose first batch is before first_read nobody reads anything any more, when the inputs
  // of this turn have come.
  uint32_t group = 0;  // its first batch
  uint32_t first_read = 0;
};

// The order in which a stage evaluates. A stage with several parts goes by groups of as many
// batches as there are stages, and through each of its parts with all of a group: when it has done
// one part of a group's last batch the first one is back for the next part. With one batch after
// the other it would wait for each of them. Groups are the same on all stages, which so wait for
// no batch that is not fed.
class EvaluationSchedule {
 public:
  // parts: of the stage, which all stages have as many of. fed: so many batches are fed before the
  // result of the first one is there, at least twice the stages; one more with each result.
  EvaluationSchedule(std::vector<uint32_t> parts, uint32_t stages, uint32_t batches, uint32_t fed);

  uint64_t size() const { return uint64_t{batches_} * parts_.size(); }
  EvaluationTurn operator[](uint64_t index) const;

 private:
  const std::vector<uint32_t> parts_;
  const uint32_t group_;  // batches
  const uint32_t batches_;
  const uint32_t fed_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_EVALUATION_SCHEDULE_H_
