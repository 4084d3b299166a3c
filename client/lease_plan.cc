#include "client/lease_plan.h"

#include <algorithm>
#include <utility>

#include "common/job/data_division.h"

namespace parley {

LeasePlan::LeasePlan(const JobConfig& job, const ClusterView& view)
    : job_(job), training_samples_(view.training_samples()), version_(view.start_version()) {
  lease_.set_data_epoch(view.data_position().epoch());
}

void LeasePlan::Follow(uint64_t version, const Lease& lease) {
  lease_ = lease;
  version_ = std::max(version_, version);
  if (lease.has_version()) version_ = lease.version();
}

std::optional<StepPlan> LeasePlan::Next() const {
  if (lease_.clock() == 0) return std::nullopt;
  StepPlan plan;
  plan.step = lease_.clock();
  plan.data_epoch = lease_.data_epoch();
  plan.ranges.assign(lease_.ranges().begin(), lease_.ranges().end());
  const uint64_t nominal = NominalSamples(job_);
  plan.weight = nominal == 0 ? 0 : static_cast<double>(Count(plan.ranges)) / nominal;
  plan.contributor_ranges = plan.ranges;
  plan.contributor_weight = plan.weight;
  if (plan.ranges.empty()) return plan;
  if (orders_.count(plan.data_epoch) == 0) {
    orders_.clear();
    orders_[plan.data_epoch] =
        EpochOrder(job_.seed(), plan.data_epoch, training_samples_, job_.data().shuffle());
  }
  const std::vector<uint64_t>& order = orders_[plan.data_epoch];
  for (const SampleRange& range : plan.ranges) {
    for (uint64_t i = range.begin(); i < range.end() && i < order.size(); ++i) {
      plan.samples.push_back(order[i]);
    }
  }
  return plan;
}

}  // namespace parley
