#ifndef PARLEY_SERVER_PARAMETER_SHARD_ELASTIC_ORACLE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_ELASTIC_ORACLE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "common/job/data_division.h"
#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {

constexpr uint64_t kElasticSamples = 60;
constexpr uint32_t kElasticBatch = 2;

inline std::vector<uint32_t> OrdinalsOf(const ClusterView& view) {
  std::vector<uint32_t> ordinals;
  for (const Contributor& contributor : view.contributors()) {
    ordinals.push_back(contributor.ordinal());
  }
  std::sort(ordinals.begin(), ordinals.end());
  return ordinals;
}

// Integers, another one for each member, step and attempt: values tell whose they are made of.
inline float GradientOf(uint64_t member, uint64_t step, uint32_t attempt, uint32_t slice) {
  const uint64_t mixed =
      (member * 7919 + step * 104729 + attempt * 1299709 + slice * 31 + 1) * 0x9e3779b97f4a7c15u;
  return static_cast<float>(mixed % 2001) - 1000;
}

// What a job's verdicts and values must be while members come and go, worked out from the verdicts
// alone. Failures are those of the test that asks.
class ElasticOracle {
 public:
  // views: all that have ever been, the first of them at least. removed: member and the epoch of
  // the first view without it. seen: counts what has happened. All must outlive it; the vectors may
  // grow.
  ElasticOracle(const JobConfig& job, ShardCluster& cluster, const std::deque<ClusterView>& views,
                const std::map<uint64_t, uint64_t>& removed, std::map<std::string, int>& seen)
      : job_(job),
        cluster_(cluster),
        views_(views),
        removed_(removed),
        seen_(seen),
        checked_(cluster.size(), 0),
        divided_among_(OrdinalsOf(views[0])) {
    for (const Slice& slice : views[0].slices()) expected_[0][slice.id()] = 0;
  }

  void CheckVerdicts() {
    const size_t before = decided_;
    const std::vector<Verdict>& reported = cluster_.reported();
    for (; decided_ < reported.size(); ++decided_) CheckVerdict(reported[decided_]);
    if (decided_ == before) return;
    const JobProgress& progress = cluster_.leader().Progress();
    ASSERT_EQ(progress.step(), step_);
    ASSERT_EQ(progress.samples(), samples_);
    ASSERT_EQ(progress.position().SerializeAsString(), position_.SerializeAsString());
    ASSERT_EQ(progress.applied() + progress.skipped(), step_);
    ASSERT_EQ(progress.retried() + step_, reported.size());
  }

  // Each version of each shard is the sum of the shares that the verdicts name.
  void CheckValues() {
    for (uint32_t shard = 0; shard < cluster_.size(); ++shard) {
      Shard& core = cluster_.shard(shard);
      ASSERT_FALSE(core.error().has_value()) << "shard " << shard << ": " << *core.error();
      if (checked_[shard] == core.version()) continue;
      checked_[shard] = core.version();
      const auto slices = core.Snapshot(core.version());
      ASSERT_TRUE(slices.ok()) << slices.status();
      for (const SliceSnapshot& slice : *slices) {
        for (const float value : slice.values->as<float>()) {
          ASSERT_EQ(value, expected_[core.version()][slice.slice])
              << "shard " << shard << " version " << core.version() << " slice " << slice.slice;
        }
      }
      CheckKeptVersion(shard);
    }
  }

  const ClusterView* ViewOf(uint64_t epoch) const {
    for (const ClusterView& view : views_) {
      if (view.view_epoch() == epoch) return &view;
    }
    return nullptr;
  }

 private:
  // Of a step in which nobody came or went: the first ones that are complete count, but nobody
  // else, and data that only some have are waited for.
  void CheckQuorum(const Verdict& verdict, const DataPosition& before) {
    const auto all = static_cast<uint32_t>(divided_among_.size());
    const uint32_t least = LeastCounted(job_, all);
    ASSERT_GE(static_cast<uint32_t>(verdict.shares_size()), least);
    const auto division = Divide(before, kElasticSamples, all, kElasticBatch);
    const auto with_data = static_cast<uint32_t>(std::count_if(
        division.begin(), division.end(), [](const auto& ranges) { return !ranges.empty(); }));
    uint32_t counted_with_data = 0;
    for (const Share& share : verdict.shares()) counted_with_data += share.samples() > 0;
    ASSERT_EQ(counted_with_data, std::min(with_data, least));
    if (with_data < least) ++seen_["all who have data"];
    if (with_data > least) ++seen_["left one out"];
  }

  // Each data epoch that ends, and nothing else, is evaluated.
  void CheckEvaluation(const Verdict& verdict, const DataPosition& before) {
    ASSERT_EQ(verdict.has_evaluation(), position_.epoch() > before.epoch());
    if (!verdict.has_evaluation()) return;
    const EvaluationOrder& order = verdict.evaluation();
    ASSERT_EQ(order.version(), verdict.step());
    ASSERT_EQ(order.epoch(), position_.epoch());
    ASSERT_EQ(std::vector<uint32_t>(order.contributors().begin(), order.contributors().end()),
              std::vector<uint32_t>(verdict.contributors().begin(), verdict.contributors().end()));
    evaluations_.push_back(order.version());
  }

  // The last version that is to be evaluated is there as it was, however far the shard is.
  void CheckKeptVersion(uint32_t shard) {
    uint64_t kept = 0;
    for (const uint64_t version : evaluations_) {
      if (version <= cluster_.shard(shard).version()) kept = version;
    }
    if (kept == 0) return;
    if (kept < cluster_.shard(shard).version()) ++seen_["version kept"];
    const Routing& routing = *cluster_.shard(shard).routing();
    PullRequest request;
    *request.mutable_header() = testing::HeaderOf(routing.view(), routing.self().id());
    request.set_version(kept);
    for (const uint32_t slice : routing.own_slices()) request.add_slices(slice);
    absl::StatusOr<PulledVersion> pulled = absl::UnknownError("parked");
    {
      Replies replies;
      cluster_.shard(shard).Pull(
          request, {.now = cluster_.now(), .deadline = cluster_.now() + absl::Hours(1)}, replies,
          [&](absl::StatusOr<PulledVersion> reply) { pulled = std::move(reply); });
    }
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    for (const PulledVersion::OneSlice& slice : pulled->slices) {
      for (const float value : slice.values->as<float>()) {
        ASSERT_EQ(value, expected_[kept][slice.slice]) << "shard " << shard << " version " << kept;
      }
    }
  }

  void CheckVerdict(const Verdict& verdict) {
    ASSERT_EQ(verdict.step(), step_ + 1);
    ASSERT_EQ(verdict.attempt(), attempt_);
    ASSERT_GE(verdict.view_epoch(), named_);
    ASSERT_NE(ViewOf(verdict.view_epoch()), nullptr);
    std::map<uint32_t, float> values = expected_[step_];
    std::vector<SampleRange> used;
    for (const Share& share : verdict.shares()) {
      const auto member = static_cast<uint64_t>(share.loss_sum());
      ASSERT_NE(std::count(divided_among_.begin(), divided_among_.end(), share.contributor()), 0);
      // Whoever was out of the view that governs this attempt has no share in it.
      const auto removed = removed_.find(member);
      if (removed != removed_.end()) {
        ASSERT_GT(removed->second, named_) << "member " << member;
        ++seen_["share of one that has gone"];
      }
      for (auto& [slice, value] : values) {
        value -= GradientOf(member, verdict.step(), verdict.attempt(), slice);
      }
      samples_ += share.samples();
      used.insert(used.end(), share.ranges().begin(), share.ranges().end());
    }
    const bool same_view = verdict.view_epoch() == named_;
    named_ = verdict.view_epoch();
    if (verdict.outcome() == Verdict::RETRY) {
      ASSERT_FALSE(same_view) << "nobody has gone: one that is late is no reason";
      ++seen_["retry"];
      ++attempt_;
      return;
    }
    const DataPosition before = position_;
    if (verdict.shares().empty()) {
      ASSERT_EQ(verdict.outcome(), Verdict::SKIP);
      ++seen_["skip of nobody"];
    } else {
      ASSERT_EQ(verdict.outcome(), Verdict::APPLY);
      if (!used.empty()) {
        ASSERT_EQ(MarkUsed(position_, verdict.data_epoch(), used, kElasticSamples),
                  absl::OkStatus());
      }
    }
    if (same_view && attempt_ == 0) CheckQuorum(verdict, before);
    CheckEvaluation(verdict, before);
    divided_among_.assign(verdict.contributors().begin(), verdict.contributors().end());
    ASSERT_EQ(divided_among_, OrdinalsOf(*ViewOf(verdict.view_epoch())));
    expected_[++step_] = std::move(values);
    attempt_ = 0;
  }

  const JobConfig& job_;
  ShardCluster& cluster_;
  const std::deque<ClusterView>& views_;
  const std::map<uint64_t, uint64_t>& removed_;
  std::map<std::string, int>& seen_;
  std::vector<uint64_t> checked_;

  // As the verdicts say.
  size_t decided_ = 0;
  uint64_t step_ = 0;
  uint32_t attempt_ = 0;
  std::vector<uint32_t> divided_among_;
  uint64_t named_ = 1;  // the view that governs the open attempt
  uint64_t samples_ = 0;
  DataPosition position_;
  std::vector<uint64_t> evaluations_;                       // versions
  std::map<uint64_t, std::map<uint32_t, float>> expected_;  // version -> slice
};

}  // namespace parley::testing

#endif  // PARLEY_SERVER_PARAMETER_SHARD_ELASTIC_ORACLE_H_
