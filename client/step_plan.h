#ifndef PARLEY_CLIENT_STEP_PLAN_H_
#define PARLEY_CLIENT_STEP_PLAN_H_

#include <cstdint>
#include <vector>

#include "proto/types.pb.h"

namespace parley {

// What one worker does in one step. A value: it stays as it is when the next one is asked for.
struct StepPlan {
  uint64_t step = 0;        // from 1; in bounded and async the worker's clock
  uint64_t data_epoch = 0;  // from 0
  bool ends_epoch =
      false;  // the data epoch is used up after this step, whoever has its last sample
  std::vector<SampleRange> ranges;  // positions in the shuffled order of the data epoch
  std::vector<uint64_t>
      samples;        // the same as indices into the training set, in order; may be empty
  double weight = 0;  // samples / nominal samples of a worker
  // Of the whole contributor, which is this worker alone, or the node group that it is a rank of:
  // the ranges and weights of all its ranks together.
  std::vector<SampleRange> contributor_ranges;
  double contributor_weight = 0;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_STEP_PLAN_H_
