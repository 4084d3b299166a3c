#ifndef PARLEY_COMMON_JOB_DATA_DIVISION_H_
#define PARLEY_COMMON_JOB_DATA_DIVISION_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "proto/types.pb.h"

namespace parley {

// Which samples each contributor takes: pure functions of the data position, the contributors and
// the seed, the same in every process (docs/guarantees.md, Data).

// Samples of a contributor's full step: data.batch * accumulate.
uint64_t NominalSamples(const JobConfig& job);

// How many of a step's contributors it counts at least: all but the backups, and one.
uint32_t LeastCounted(const JobConfig& job, uint32_t contributors);

// The step with which the job ends, if every step uses a full batch of each contributor that it
// counts at least. In bounded and async a step is one contribution, here and below.
uint64_t TotalSteps(const JobConfig& job, uint64_t training_samples);

// Whether no step remains: the position has reached the job's epochs, or `version` its steps.
bool IsDone(const JobConfig& job, const DataPosition& position, uint64_t version);

// The ranges of each contributor (index: place among the ordinals) in the next step: first the
// positions after the last used one, then the holes that lost and late contributors have left, both
// in order; `nominal` to each contributor in turn. What remains at the end of an epoch goes to the
// first ones, the others get none. Holes come last so that plans made ahead stay true whoever is
// left out, and a slow contributor's samples do not come back to the next step.
std::vector<std::vector<SampleRange>> Divide(const DataPosition& position,
                                             uint64_t training_samples, uint32_t contributors,
                                             uint64_t nominal);

// Where the step behind `position` stands in the data, if of so many workers as many are counted as
// have to be.
SchedulePlace PlaceInData(const JobConfig& job, const DataPosition& position,
                          uint64_t training_samples, uint32_t workers);

// Marks ranges of data epoch `epoch` as used; when all are, the position moves on to the next
// epoch. InvalidArgument if the epoch is another one, or a range is empty, used already or beyond
// the set.
absl::Status MarkUsed(DataPosition& position, uint64_t epoch,
                      const std::vector<SampleRange>& ranges, uint64_t training_samples);

// Sample indices in the order of a data epoch: order[position] = index. The identity where
// `shuffle` is off; else a Fisher-Yates shuffle with a generator seeded from (seed, epoch).
std::vector<uint64_t> EpochOrder(uint64_t seed, uint64_t epoch, uint64_t training_samples,
                                 bool shuffle);

uint64_t Count(const std::vector<SampleRange>& ranges);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_DATA_DIVISION_H_
