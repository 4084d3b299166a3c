#ifndef PARLEY_CLIENT_DATA_PLAN_H_
#define PARLEY_CLIENT_DATA_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "client/step_plan.h"
#include "proto/job.pb.h"
#include "proto/types.pb.h"

namespace parley {

// What one worker does in each step: the data position as the verdicts move it on, and the division
// of what is unused (common/job/data_division.h) among the workers, which are the contributors or
// the ranks of the contributors' node groups, in their order. Every process of the job computes the
// same. One thread uses it.
class DataPlan {
 public:
  // At the start of the job. Reset says where it really is.
  DataPlan(const JobConfig& job, const ClusterView& view, uint32_t contributor, uint32_t rank = 0);

  // The job is at `version`, with `position` after it; the next step's data are divided among
  // `contributors` (ordinals, ascending).
  void Reset(uint64_t version, DataPosition position, std::vector<uint32_t> contributors);

  const std::vector<uint32_t>& contributors() const { return contributors_; }

  // The last decided step.
  uint64_t version() const { return version_; }
  const DataPosition& position() const { return position_; }

  // The step after version(); nullopt when the job is done.
  std::optional<StepPlan> Next() const;
  // That one and the following ones, as they come if every contributor counts in every step.
  std::vector<StepPlan> Ahead(size_t count) const;

  // Moves on by a verdict of APPLY or SKIP, which also says among whom the next step's data are
  // divided. Internal where it is not of the next step, or names
  // ranges that are not unused: this process and the step leader disagree about the data.
  absl::Status Decide(const Verdict& verdict);

 private:
  using Order = std::vector<uint64_t>;

  // Plans the step after `version` and moves `position` on as if all counted.
  std::optional<StepPlan> Advance(DataPosition& position, uint64_t version) const;
  const Order& OrderOf(uint64_t epoch) const;

  const JobConfig job_;
  const uint32_t contributor_;
  const uint32_t group_;  // ranks of each node group; 1: there are none
  const uint32_t rank_;
  std::vector<uint32_t> contributors_;
  const uint64_t training_samples_;
  DataPosition position_;
  uint64_t version_;
  mutable std::map<uint64_t, Order> orders_;  // of the present data epoch and the next ones
};

}  // namespace parley

#endif  // PARLEY_CLIENT_DATA_PLAN_H_
