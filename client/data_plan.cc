#include "client/data_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/contributor_places.h"
#include "common/job/data_division.h"

namespace parley {
namespace {

double WeightOf(const std::vector<SampleRange>& ranges, uint64_t nominal) {
  return nominal == 0 ? 0 : static_cast<double>(Count(ranges)) / nominal;
}

}  // namespace

DataPlan::DataPlan(const JobConfig& job, const ClusterView& view, uint32_t contributor,
                   uint32_t rank)
    : job_(job),
      contributor_(contributor),
      group_(ShapeOf(job.cluster()).group),
      rank_(rank),
      training_samples_(view.training_samples()),
      position_(view.data_position()),
      version_(view.start_version()) {
  for (const Contributor& each : view.contributors()) contributors_.push_back(each.ordinal());
}

void DataPlan::Reset(uint64_t version, DataPosition position, std::vector<uint32_t> contributors) {
  version_ = version;
  position_ = std::move(position);
  contributors_ = std::move(contributors);
}

std::optional<StepPlan> DataPlan::Next() const {
  DataPosition position = position_;
  return Advance(position, version_);
}

std::vector<StepPlan> DataPlan::Ahead(size_t count) const {
  std::vector<StepPlan> plans;
  DataPosition position = position_;
  while (plans.size() < count) {
    std::optional<StepPlan> plan = Advance(position, version_ + plans.size());
    if (!plan.has_value()) break;
    plans.push_back(*std::move(plan));
  }
  return plans;
}

std::optional<StepPlan> DataPlan::Advance(DataPosition& position, uint64_t version) const {
  if (IsDone(job_, position, version)) return std::nullopt;
  const uint64_t nominal = NominalSamples(job_);
  const std::vector<std::vector<SampleRange>> division =
      Divide(position, training_samples_,
             static_cast<uint32_t>(std::max<size_t>(1, contributors_.size())) * group_, nominal);
  StepPlan plan;
  plan.step = version + 1;
  plan.data_epoch = position.epoch();
  // One that is not among them (its place was taken while it was away) has no data.
  const auto place = std::lower_bound(contributors_.begin(), contributors_.end(), contributor_);
  if (place != contributors_.end() && *place == contributor_) {
    const size_t first = static_cast<size_t>(place - contributors_.begin()) * group_;
    for (size_t rank = 0; rank < group_; ++rank) {
      const std::vector<SampleRange>& ranges = division[first + rank];
      const double weight = WeightOf(ranges, nominal);
      plan.contributor_ranges.insert(plan.contributor_ranges.end(), ranges.begin(), ranges.end());
      // In the order of ranks, as the shards add the weights of single workers.
      plan.contributor_weight += weight;
      if (rank != rank_) continue;
      plan.ranges = ranges;
      plan.weight = weight;
    }
  }
  if (!plan.ranges.empty()) {
    const Order& order = OrderOf(plan.data_epoch);
    for (const SampleRange& range : plan.ranges) {
      for (uint64_t i = range.begin(); i < range.end() && i < order.size(); ++i) {
        plan.samples.push_back(order[i]);
      }
    }
  }

  std::vector<SampleRange> all;
  for (const auto& ranges : division) all.insert(all.end(), ranges.begin(), ranges.end());
  // A division of unused ranges can be marked as used.
  if (!all.empty()) (void)MarkUsed(position, plan.data_epoch, all, training_samples_);
  plan.ends_epoch = position.epoch() != plan.data_epoch;
  return plan;
}

absl::Status DataPlan::Decide(const Verdict& verdict) {
  if (verdict.step() != version_ + 1) {
    return absl::InternalError(absl::StrCat("a verdict of step ", verdict.step(), " where step ",
                                            version_ + 1, " is open"));
  }
  std::vector<SampleRange> ranges;
  for (const Share& share : verdict.shares()) {
    ranges.insert(ranges.end(), share.ranges().begin(), share.ranges().end());
  }
  if (!ranges.empty()) {
    const absl::Status marked =
        MarkUsed(position_, verdict.data_epoch(), ranges, training_samples_);
    if (!marked.ok()) {
      return absl::InternalError(
          absl::StrCat("the verdict of step ", verdict.step(), ": ", marked.message()));
    }
  }
  version_ = verdict.step();
  if (!verdict.contributors().empty()) {
    contributors_.assign(verdict.contributors().begin(), verdict.contributors().end());
  }
  orders_.erase(orders_.begin(), orders_.lower_bound(position_.epoch()));
  return absl::OkStatus();
}

const DataPlan::Order& DataPlan::OrderOf(uint64_t epoch) const {
  const auto found = orders_.find(epoch);
  if (found != orders_.end()) return found->second;
  return orders_
      .emplace(epoch, EpochOrder(job_.seed(), epoch, training_samples_, job_.data().shuffle()))
      .first->second;
}

}  // namespace parley
