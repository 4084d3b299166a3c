#include "client/data_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

namespace parley {
namespace {

JobConfig Job(uint64_t epochs, uint32_t batch) {
  JobConfig job;
  job.set_seed(11);
  job.set_epochs(epochs);
  job.set_accumulate(1);
  job.mutable_data()->set_batch(batch);
  job.mutable_data()->set_shuffle(true);
  return job;
}

ClusterView View(uint32_t workers, uint64_t samples) {
  ClusterView view;
  for (uint32_t i = 0; i < workers; ++i) view.add_contributors()->set_ordinal(i);
  view.set_training_samples(samples);
  return view;
}

// The verdict in which these contributors' shares count.
Verdict Decided(const std::vector<StepPlan>& plans, const std::vector<uint32_t>& counted) {
  Verdict verdict;
  verdict.set_outcome(Verdict::APPLY);
  verdict.set_step(plans[0].step);
  verdict.set_data_epoch(plans[0].data_epoch);
  for (uint32_t i : counted) {
    Share* share = verdict.add_shares();
    share->set_contributor(i);
    share->mutable_ranges()->Assign(plans[i].ranges.begin(), plans[i].ranges.end());
  }
  return verdict;
}

TEST(DataPlan, EachSampleOfAnEpochIsInExactlyOneCountedShare) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    const uint32_t workers = 1 + random() % 4;
    const uint64_t samples = 1 + random() % 500;
    const uint32_t batch = 1 + random() % 40;
    const uint64_t epochs = 3;
    const ClusterView view = View(workers, samples);
    std::vector<DataPlan> plans;
    for (uint32_t i = 0; i < workers; ++i) plans.emplace_back(Job(epochs, batch), view, i);
    std::vector<std::multiset<uint64_t>> seen(epochs);
    for (int steps = 0;; ++steps) {
      ASSERT_LT(steps, 10'000) << "seed " << seed;
      std::vector<StepPlan> step;
      for (DataPlan& plan : plans) {
        const auto next = plan.Next();
        if (!next.has_value()) break;
        EXPECT_EQ(next->samples.size(), std::llround(next->weight * batch));
        step.push_back(*next);
      }
      if (step.empty()) break;
      ASSERT_EQ(step.size(), workers);
      // Sometimes a contributor does not count; its samples come again.
      std::vector<uint32_t> counted;
      for (uint32_t i = 0; i < workers; ++i) {
        if (workers == 1 || random() % 5 != 0) counted.push_back(i);
      }
      for (uint32_t i : counted) {
        seen[step[i].data_epoch].insert(step[i].samples.begin(), step[i].samples.end());
      }
      for (DataPlan& plan : plans) ASSERT_TRUE(plan.Decide(Decided(step, counted)).ok());
    }
    for (const auto& epoch : seen) {
      EXPECT_EQ(epoch.size(), samples) << "seed " << seed;
      EXPECT_EQ(std::set<uint64_t>(epoch.begin(), epoch.end()).size(), samples) << "seed " << seed;
    }
  }
}

TEST(DataPlan, AheadIsWhatComesWhenAllCount) {
  const ClusterView view = View(2, 25);
  std::vector<DataPlan> plans{{Job(2, 4), view, 0}, {Job(2, 4), view, 1}};
  const std::vector<StepPlan> ahead = plans[1].Ahead(100);
  EXPECT_EQ(ahead.size(), 8);  // 25 samples, 8 a step: 4 steps an epoch
  EXPECT_EQ(plans[1].Ahead(3).size(), 3);
  for (size_t i = 0; i < ahead.size(); ++i) {
    const auto mine = plans[1].Next();
    ASSERT_TRUE(mine.has_value());
    EXPECT_EQ(mine->samples, ahead[i].samples);
    EXPECT_EQ(mine->step, ahead[i].step);
    EXPECT_EQ(mine->ends_epoch, ahead[i].ends_epoch);
    EXPECT_EQ(mine->ends_epoch, i % 4 == 3);
    if (i % 4 == 3) {
      EXPECT_TRUE(mine->samples.empty());  // the one that is left is the first contributor's
      EXPECT_EQ(mine->weight, 0);
    }
    const Verdict verdict = Decided({*plans[0].Next(), *mine}, {0, 1});
    for (DataPlan& plan : plans) ASSERT_TRUE(plan.Decide(verdict).ok());
  }
  EXPECT_FALSE(plans[1].Next().has_value());
}

TEST(DataPlan, ARankOfANodeGroupHasWhatItHasAsASingleWorker) {
  // Two groups of three ranks; the last step of an epoch has a partial batch, and ranks without.
  JobConfig groups = Job(2, 4);
  groups.mutable_cluster()->set_group(3);
  std::vector<DataPlan> alone;
  std::vector<DataPlan> ranks;
  for (uint32_t i = 0; i < 6; ++i) {
    alone.emplace_back(Job(2, 4), View(6, 59), i);
    ranks.emplace_back(groups, View(2, 59), i / 3, i % 3);
  }
  for (int steps = 0; steps < 6; ++steps) {
    std::vector<StepPlan> counted_alone;
    std::vector<StepPlan> counted_groups(2);
    for (uint32_t i = 0; i < 6; ++i) {
      const StepPlan one = *alone[i].Next();
      const StepPlan rank = *ranks[i].Next();
      EXPECT_EQ(rank.samples, one.samples);
      EXPECT_EQ(rank.weight, one.weight);
      EXPECT_EQ(one.contributor_weight, one.weight);
      EXPECT_EQ(rank.ends_epoch, one.ends_epoch);
      counted_alone.push_back(one);
      // All ranks say the same of their group.
      StepPlan& group = counted_groups[i / 3];
      if (i % 3 == 0) group = rank;
      EXPECT_EQ(rank.contributor_weight, group.contributor_weight);
      group.ranges = rank.contributor_ranges;
    }
    for (uint32_t group = 0; group < 2; ++group) {
      double weight = 0;
      for (uint32_t rank = 0; rank < 3; ++rank) weight += counted_alone[group * 3 + rank].weight;
      EXPECT_EQ(counted_groups[group].contributor_weight, weight);
    }
    const Verdict of_workers = Decided(counted_alone, {0, 1, 2, 3, 4, 5});
    const Verdict of_groups = Decided(counted_groups, {0, 1});
    for (DataPlan& plan : alone) ASSERT_TRUE(plan.Decide(of_workers).ok());
    for (DataPlan& plan : ranks) ASSERT_TRUE(plan.Decide(of_groups).ok());
  }
  EXPECT_FALSE(ranks[5].Next().has_value());
}

TEST(DataPlan, RefusesAVerdictThatDoesNotFit) {
  DataPlan plan(Job(1, 4), View(1, 25), 0);
  const StepPlan first = *plan.Next();
  Verdict verdict = Decided({first}, {0});
  verdict.set_step(2);
  EXPECT_EQ(plan.Decide(verdict).code(), absl::StatusCode::kInternal);
  verdict.set_step(1);
  verdict.mutable_shares(0)->mutable_ranges(0)->set_end(26);
  EXPECT_EQ(plan.Decide(verdict).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(plan.version(), 0);
  EXPECT_TRUE(plan.Decide(Decided({first}, {0})).ok());
  EXPECT_EQ(plan.version(), 1);
}

}  // namespace
}  // namespace parley
