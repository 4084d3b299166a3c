#include "server/parameter_shard/clock_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "common/job/data_division.h"

namespace parley {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000);
const auto kSomething = [](uint32_t) { return true; };
const auto kNothing = [](uint32_t) { return false; };

JobConfig Epochs(uint64_t epochs, uint32_t workers, uint32_t batch = 2) {
  JobConfig job;
  job.mutable_data()->set_batch(batch);
  job.mutable_consistency()->mutable_bounded();
  job.mutable_cluster()->set_workers(workers);
  job.set_epochs(epochs);
  return job;
}

JobConfig Steps(uint64_t steps, uint32_t workers) {
  JobConfig job = Epochs(1, workers);
  job.clear_epochs();
  job.set_steps(steps);
  return job;
}

CompleteRequest Completion(const ClockGate& gate, uint32_t contributor) {
  CompleteRequest request;
  const Lease* const lease = gate.LeaseOf(contributor);
  if (lease == nullptr) return request;
  request.set_step(lease->clock());
  request.set_data_epoch(lease->data_epoch());
  Share& share = *request.mutable_share();
  share.set_contributor(contributor);
  *share.mutable_ranges() = lease->ranges();
  share.set_samples(Count({lease->ranges().begin(), lease->ranges().end()}));
  share.set_weight(static_cast<double>(share.samples()) / 2);
  return request;
}

// Completes its lease and settles. The verdict, if there is one.
std::optional<Verdict> Work(ClockGate& gate, uint32_t contributor) {
  auto verdict = gate.Complete(Completion(gate, contributor));
  EXPECT_TRUE(verdict.ok()) << verdict.status();
  gate.Settle(kNow);
  return verdict.ok() ? *verdict : std::nullopt;
}

uint64_t ClockOf(const ClockGate& gate, uint32_t contributor) {
  const Lease* const lease = gate.LeaseOf(contributor);
  return lease == nullptr ? 0 : lease->clock();
}

uint64_t FirstOf(const ClockGate& gate, uint32_t contributor) {
  const Lease* const lease = gate.LeaseOf(contributor);
  return lease == nullptr || lease->ranges().empty() ? 999 : lease->ranges(0).begin();
}

TEST(ClockGateTest, EachContributorGoesOnFromItsOwnClock) {
  ClockGate gate(Epochs(1, 2), 100, 0, {});
  gate.Enter(0, 1);
  gate.Enter(1, 1);
  gate.Settle(kNow);
  EXPECT_EQ(FirstOf(gate, 0), 0u);
  EXPECT_EQ(FirstOf(gate, 1), 2u);
  for (uint64_t clock = 1; clock <= 3; ++clock) {
    const auto verdict = Work(gate, 0);
    ASSERT_TRUE(verdict.has_value());
    EXPECT_EQ(verdict->step(), clock);
    EXPECT_EQ(verdict->outcome(), Verdict::APPLY);
    EXPECT_EQ(verdict->shares_size(), 1);
    EXPECT_EQ(gate.floor(), 0u);
    ASSERT_NE(gate.ReplyOf(0, clock), nullptr);
    EXPECT_EQ(gate.ReplyOf(0, clock)->lease().clock(), clock + 1);
  }
  EXPECT_EQ(Work(gate, 1)->step(), 4u);
  EXPECT_EQ(gate.floor(), 1u);
  EXPECT_EQ(ClockOf(gate, 0), 4u);
  EXPECT_EQ(ClockOf(gate, 1), 2u);
}

TEST(ClockGateTest, ARepeatedCompleteGetsTheStoredReply) {
  ClockGate gate(Epochs(1, 1), 100, 0, {});
  gate.Enter(0, 1);
  gate.Settle(kNow);
  const CompleteRequest first = Completion(gate, 0);
  Work(gate, 0);
  const auto again = gate.Complete(first);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->has_value());
  EXPECT_EQ(gate.ReplyOf(0, 1)->verdict().step(), 1u);
  CompleteRequest other = first;
  other.mutable_share()->set_loss_sum(7);
  EXPECT_EQ(gate.Complete(other).status().code(), absl::StatusCode::kInvalidArgument);
  Work(gate, 0);
  EXPECT_EQ(gate.Complete(first).status().code(), absl::StatusCode::kAborted);
}

TEST(ClockGateTest, SamplesThatWereNotLeasedAreRefused) {
  ClockGate gate(Epochs(1, 1), 100, 0, {});
  EXPECT_EQ(gate.Complete(Completion(gate, 0)).status().code(), absl::StatusCode::kInvalidArgument);
  gate.Enter(0, 1);
  gate.Settle(kNow);
  CompleteRequest request = Completion(gate, 0);
  request.mutable_share()->mutable_ranges(0)->set_end(3);
  request.mutable_share()->set_samples(3);
  EXPECT_EQ(gate.Complete(request).status().code(), absl::StatusCode::kInvalidArgument);
  request = Completion(gate, 0);
  request.set_step(2);
  EXPECT_EQ(gate.Complete(request).status().code(), absl::StatusCode::kInvalidArgument);
  request = Completion(gate, 0);
  request.mutable_share()->set_weight(-1);
  EXPECT_EQ(gate.Complete(request).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(gate.version(), 0u);
}

TEST(ClockGateTest, OneThatLeavesGivesItsLeaseBackAndItComesAfterTheRest) {
  ClockGate gate(Epochs(1, 3), 10, 0, {});
  for (uint32_t i = 0; i < 3; ++i) gate.Enter(i, 1);
  gate.Settle(kNow);
  gate.Change({{0, 1}, {2, 1}}, kSomething);
  gate.Settle(kNow);
  EXPECT_EQ(gate.counts().cut, 1u);
  for (const uint64_t first : {6u, 8u, 2u}) {
    Work(gate, 2);
    EXPECT_EQ(FirstOf(gate, 2), first);
  }
  // Nothing of this one can have come.
  gate.Change({{2, 1}}, kNothing);
  EXPECT_EQ(gate.counts().cut, 1u);
}

TEST(ClockGateTest, AReplacementBeginsAtTheFloorWithAnotherAttempt) {
  ClockGate gate(Epochs(1, 2), 100, 0, {});
  gate.Enter(0, 1);
  gate.Enter(1, 1);
  gate.Settle(kNow);
  for (int i = 0; i < 5; ++i) Work(gate, 0);
  for (int i = 0; i < 3; ++i) Work(gate, 1);
  EXPECT_EQ(gate.floor(), 3u);
  gate.Change({{0, 7}, {1, 1}}, kSomething);
  EXPECT_FALSE(gate.has_entered(0));
  gate.Settle(kNow);
  gate.Enter(0, 7);
  gate.Settle(kNow);
  EXPECT_EQ(ClockOf(gate, 0), 4u);
  EXPECT_EQ(gate.floor(), 3u);
}

TEST(ClockGateTest, AnIdleOneDoesNotCountForTheFloorAndResumesAtIt) {
  // Three leases for two: the third goes to whoever is first.
  ClockGate gate(Epochs(2, 2), 12, 0, {});
  gate.Enter(0, 1);
  gate.Enter(1, 1);
  gate.Settle(kNow);
  for (int i = 0; i < 5; ++i) Work(gate, 1);
  EXPECT_EQ(gate.LeaseOf(1), nullptr) << "nothing is left for it";
  EXPECT_EQ(gate.ReplyOf(1, 5), nullptr);
  EXPECT_FALSE(gate.barrier().has_value());
  gate.Change({{1, 1}}, kSomething);
  gate.Settle(kNow);
  EXPECT_EQ(ClockOf(gate, 1), 6u);
  EXPECT_EQ(FirstOf(gate, 1), 0u);
}

TEST(ClockGateTest, TheEndOfADataEpochIsABarrierWithEvenClocks) {
  ClockGate gate(Epochs(2, 2), 8, 0, {});
  gate.Enter(0, 1);
  gate.Enter(1, 1);
  gate.Settle(kNow);
  for (int i = 0; i < 3; ++i) Work(gate, 0);
  EXPECT_FALSE(gate.barrier().has_value());
  Work(gate, 1);
  ASSERT_EQ(gate.barrier(), 4u);
  EXPECT_EQ(gate.ReplyOf(0, 3), nullptr);
  gate.Enter(2, 5);  // it has no part in the barrier
  gate.Settle(kNow);
  EXPECT_EQ(gate.LeaseOf(2), nullptr);
  gate.EndBarrier();
  gate.Settle(kNow);
  EXPECT_EQ(gate.floor(), 3u);
  for (const auto& [contributor, clock] : std::map<uint32_t, uint64_t>{{0, 3}, {1, 1}}) {
    const CompleteReply* const reply = gate.ReplyOf(contributor, clock);
    ASSERT_NE(reply, nullptr);
    EXPECT_EQ(reply->lease().clock(), 4u);
    EXPECT_EQ(reply->lease().data_epoch(), 1u);
    EXPECT_EQ(reply->lease().version(), 4u);
    EXPECT_EQ(reply->lease().evaluation().contributors_size(), 2);
  }
  EXPECT_EQ(ClockOf(gate, 2), 4u);
  for (const uint32_t contributor : {0, 1, 2}) Work(gate, contributor);
  EXPECT_FALSE(gate.LeaseOf(1) != nullptr && gate.LeaseOf(1)->has_version());
  while (!gate.barrier().has_value()) {
    for (const uint32_t contributor : {0, 1, 2}) {
      if (gate.LeaseOf(contributor) != nullptr) Work(gate, contributor);
    }
  }
  EXPECT_EQ(gate.barrier(), 8u);
  gate.EndBarrier();
  gate.Settle(kNow);
  EXPECT_TRUE(gate.done());
  for (const uint32_t contributor : {0, 1, 2}) {
    ASSERT_NE(gate.LeaseOf(contributor), nullptr);
    EXPECT_EQ(gate.LeaseOf(contributor)->clock(), 0u);
    EXPECT_EQ(gate.LeaseOf(contributor)->version(), 8u);
  }
}

TEST(ClockGateTest, WhatACheckpointWaitsForIsCounted) {
  ClockGate gate(Epochs(2, 2), 8, 0, {});
  gate.Enter(0, 1);
  gate.Enter(1, 1);
  gate.Settle(kNow);
  Work(gate, 0);
  gate.Settle(kNow + absl::Seconds(1), /*wants_barrier=*/true);
  gate.Settle(kNow + absl::Seconds(3), /*wants_barrier=*/true);
  EXPECT_EQ(gate.counts().checkpoint_barriers, 0u);
  ASSERT_FALSE(gate.barrier().has_value());
  ASSERT_TRUE(gate.Complete(Completion(gate, 0)).ok());
  ASSERT_TRUE(gate.Complete(Completion(gate, 1)).ok());
  gate.Settle(kNow + absl::Seconds(8), /*wants_barrier=*/true);
  ASSERT_TRUE(gate.barrier().has_value());
  EXPECT_EQ(gate.counts().checkpoint_barriers, 1u);
  EXPECT_EQ(gate.counts().checkpoint_barrier_wait, absl::Seconds(7));
}

TEST(ClockGateTest, WhoIsLeftOverAfterABarrierEvaluatesAndThenWaits) {
  // Two leases in a data epoch, and then three contributors.
  ClockGate gate(Epochs(2, 3), 4, 0, {});
  gate.Enter(1, 1);
  gate.Enter(2, 1);
  gate.Settle(kNow);
  Work(gate, 1);
  Work(gate, 2);
  ASSERT_EQ(gate.barrier(), 2u);
  gate.Enter(0, 3);
  gate.EndBarrier();
  gate.Settle(kNow);
  ASSERT_NE(gate.LeaseOf(2), nullptr);
  EXPECT_TRUE(gate.LeaseOf(2)->ranges().empty());
  EXPECT_EQ(gate.LeaseOf(2)->version(), 2u);
  EXPECT_EQ(gate.LeaseOf(2)->evaluation().contributors_size(), 2)
      << "0 has computed nothing for version 2";
  EXPECT_FALSE(Work(gate, 2).has_value());
  EXPECT_EQ(gate.LeaseOf(2), nullptr);
  EXPECT_EQ(gate.version(), 2u);
  Work(gate, 0);
  EXPECT_FALSE(gate.barrier().has_value());
  Work(gate, 1);
  EXPECT_EQ(gate.barrier(), 4u);
}

TEST(ClockGateTest, ARefusedContributionMakesNoVerdictAndItsSamplesComeAgain) {
  ClockGate gate(Epochs(1, 1), 4, 0, {});
  gate.Enter(0, 1);
  gate.Settle(kNow);
  CompleteRequest request = Completion(gate, 0);
  request.set_fate(CompleteRequest::REFUSED);
  request.set_partly_applied(true);
  auto verdict = gate.Complete(request);
  ASSERT_TRUE(verdict.ok());
  EXPECT_FALSE(verdict->has_value());
  gate.Settle(kNow);
  EXPECT_EQ(gate.counts().refused, 1u);
  EXPECT_EQ(gate.counts().cut, 1u);
  EXPECT_EQ(gate.ReplyOf(0, 1)->verdict().outcome(), Verdict::STALE);
  EXPECT_EQ(FirstOf(gate, 0), 0u);
  EXPECT_EQ(ClockOf(gate, 0), 2u);
}

TEST(ClockGateTest, StepsAreContributionsOfAllWorkersTogether) {
  ClockGate gate(Steps(3, 2), 100, 0, {});
  gate.Enter(0, 1);
  gate.Enter(1, 1);
  gate.Settle(kNow);
  int contributions = 0;
  while (!gate.barrier().has_value()) {
    for (const uint32_t contributor : {0, 1}) {
      if (gate.LeaseOf(contributor) != nullptr)
        contributions += Work(gate, contributor).has_value();
    }
  }
  EXPECT_EQ(contributions, 6);
}

// Contributors come, work, are refused, leave and are replaced, in an order from the seed.
TEST(ClockGateTest, NoSampleIsLostAndTheFloorIsNeverAboveAnyoneAtWork) {
  int cuts = 0;
  int refusals = 0;
  int barriers = 0;
  int lead = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const uint64_t samples = 1 + random() % 60;
    const uint32_t workers = 1 + static_cast<uint32_t>(random() % 5);
    ClockGate gate(Epochs(3, workers, 1 + static_cast<uint32_t>(random() % 4)), samples, 0, {});
    std::map<uint32_t, uint32_t> present;
    std::map<uint32_t, uint64_t> completed;
    std::map<uint64_t, std::vector<int>> used;
    uint32_t attempt = 1;
    for (uint32_t i = 0; i < workers; ++i) present[i] = attempt;
    uint64_t floor = 0;
    uint64_t expected_cuts = 0;
    uint64_t verdicts = 0;
    int changes = 0;
    for (int event = 0; event < 20'000 && !gate.done(); ++event) {
      const uint32_t who = static_cast<uint32_t>(random() % workers);
      const uint64_t kind = random() % 100;
      if (gate.barrier().has_value() && kind < 30) {
        gate.EndBarrier();
        ++barriers;
      } else if (kind < 40 && present.count(who) != 0) {
        gate.Enter(who, present[who]);
      } else if (kind < 90) {
        const Lease* const lease = gate.LeaseOf(who);
        if (lease == nullptr || lease->clock() == 0) continue;
        ASSERT_GT(lease->clock(), completed[who]);
        CompleteRequest request = Completion(gate, who);
        const bool refused = random() % 20 == 0 && !lease->ranges().empty();
        if (refused) {
          request.set_fate(CompleteRequest::REFUSED);
          request.set_partly_applied(true);
          ++expected_cuts;
          ++refusals;
        }
        const Lease had = *lease;
        const auto verdict = gate.Complete(request);
        ASSERT_TRUE(verdict.ok()) << verdict.status();
        ASSERT_EQ(verdict->has_value(), !refused && !had.ranges().empty());
        completed[who] = had.clock();
        if (verdict->has_value()) {
          ASSERT_EQ((*verdict)->step(), ++verdicts);
          std::vector<int>& times = used[had.data_epoch()];
          times.resize(samples, 0);
          for (const SampleRange& range : had.ranges()) {
            for (uint64_t i = range.begin(); i < range.end(); ++i) ++times[i];
          }
        }
      } else if (changes < 20 && kind < 95 && present.size() > 1) {
        const Lease* const lease = gate.LeaseOf(who);
        const bool works = lease != nullptr && !lease->ranges().empty();
        if (present.erase(who) == 0) continue;
        expected_cuts += works;
        completed[who] = 0;
        gate.Change(present, kSomething);
        ++changes;
      } else if (present.count(who) == 0) {
        present[who] = ++attempt;
        gate.Change(present, kSomething);
      }
      gate.Settle(kNow);
      ASSERT_GE(gate.floor(), floor);
      floor = gate.floor();
      for (const ClockGate::AtWork& one : gate.at_work()) {
        ASSERT_GE(one.completed, floor);
        lead = std::max(lead, static_cast<int>(one.completed - floor));
      }
    }
    ASSERT_TRUE(gate.done());
    ASSERT_EQ(used.size(), 3u);
    for (const auto& [epoch, times] : used) {
      for (const int time : times) ASSERT_EQ(time, 1);
    }
    ASSERT_EQ(gate.counts().cut, expected_cuts);
    cuts += static_cast<int>(expected_cuts);
  }
  EXPECT_GT(cuts, 100);
  EXPECT_GT(refusals, 100);
  EXPECT_GT(barriers, 600);
  EXPECT_GT(lead, 3);
}

}  // namespace
}  // namespace parley
