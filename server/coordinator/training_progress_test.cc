#include "server/coordinator/training_progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "common/job/data_division.h"

namespace parley {
namespace {

Verdict Decide(uint64_t step, uint64_t begin, uint64_t end, uint64_t epoch = 0,
               Verdict::Outcome outcome = Verdict::APPLY) {
  Verdict verdict;
  verdict.set_step(step);
  verdict.set_outcome(outcome);
  verdict.set_data_epoch(epoch);
  Share* share = verdict.add_shares();
  share->set_samples(end - begin);
  share->set_loss_sum(2.0 * (end - begin));
  share->add_ranges()->set_begin(begin);
  share->mutable_ranges(0)->set_end(end);
  return verdict;
}

class TrainingProgressTest : public testing::Test {
 protected:
  void SetUp() override {
    progress_.Start(0, {}, 100);
    progress_.StartClock(now_);
  }

  absl::Time now_ = absl::UnixEpoch();
  TrainingProgress progress_;
};

TEST_F(TrainingProgressTest, CountsStepsSamplesAndSkippedOnes) {
  ASSERT_TRUE(progress_.Add(Decide(1, 0, 10), now_).ok());
  ASSERT_TRUE(progress_.Add(Decide(2, 10, 20, 0, Verdict::SKIP), now_).ok());
  EXPECT_EQ(progress_.step(), 2u);
  EXPECT_EQ(progress_.samples(), 20u);
  EXPECT_EQ(progress_.applied(), 1u);
  EXPECT_EQ(progress_.skipped(), 1u);
  EXPECT_DOUBLE_EQ(progress_.loss(), 2.0);
  EXPECT_EQ(progress_.position().used_size(), 1);
  EXPECT_EQ(progress_.position().used(0).end(), 20u);
}

TEST_F(TrainingProgressTest, ARepeatedVerdictIsIgnored) {
  ASSERT_TRUE(progress_.Add(Decide(1, 0, 10), now_).ok());
  ASSERT_TRUE(progress_.Add(Decide(1, 0, 10), now_).ok());
  EXPECT_EQ(progress_.samples(), 10u);
}

TEST_F(TrainingProgressTest, AGapIsRefused) {
  EXPECT_EQ(progress_.Add(Decide(2, 0, 10), now_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(progress_.step(), 0u);
}

JobProgress At(uint64_t step, uint64_t used) {
  JobProgress progress;
  progress.set_step(step);
  progress.mutable_position()->add_used()->set_end(used);
  progress.set_samples(used);
  progress.set_applied(step);
  progress.set_retried(1);
  return progress;
}

google::protobuf::RepeatedPtrField<Verdict> List(const std::vector<Verdict>& verdicts) {
  return {verdicts.begin(), verdicts.end()};
}

TEST_F(TrainingProgressTest, WhatWasMissedIsTakenFromTheLeadersOwnWord) {
  ASSERT_TRUE(progress_.Add(Decide(1, 0, 10), now_).ok());
  EXPECT_FALSE(progress_.IsBehind(At(2, 20), List({Decide(1, 0, 10), Decide(2, 10, 20)})));
  EXPECT_FALSE(progress_.IsBehind(At(1, 10), {}));
  EXPECT_TRUE(progress_.IsBehind(At(4, 40), List({Decide(4, 30, 40)})));
  EXPECT_TRUE(progress_.IsBehind(At(4, 40), {}));
  Verdict retry = Decide(5, 40, 50, 0, Verdict::RETRY);
  retry.set_attempt(2);
  ASSERT_TRUE(progress_.CatchUp(At(4, 40), List({Decide(4, 30, 40), retry}), now_).ok());
  EXPECT_EQ(progress_.step(), 4u);
  EXPECT_EQ(progress_.samples(), 40u);
  EXPECT_EQ(progress_.applied(), 4u);
  EXPECT_EQ(progress_.retried(), 1u);
  EXPECT_DOUBLE_EQ(progress_.loss(), 2.0);
  EXPECT_EQ(progress_.position().used(0).end(), 40u);
  EXPECT_EQ(progress_.SamplesPerSecond(now_ + absl::Seconds(1)), 0) << "no burst";
  // The attempts that the leader has given up are over here too.
  Verdict late = Decide(5, 40, 50);
  late.set_attempt(2);
  ASSERT_TRUE(progress_.Add(late, now_).ok());
  EXPECT_EQ(progress_.step(), 4u);
  late.set_attempt(3);
  ASSERT_TRUE(progress_.Add(late, now_).ok());
  EXPECT_EQ(progress_.step(), 5u);
  EXPECT_EQ(progress_.samples(), 50u);
}

TEST_F(TrainingProgressTest, AContradictionInTheLeadersWordIsRefusedWithoutEffect) {
  ASSERT_TRUE(progress_.CatchUp(At(4, 40), {}, now_).ok());
  JobProgress backwards = At(3, 30);
  JobProgress beyond = At(6, 101);
  JobProgress twice = At(6, 50);
  *twice.mutable_position()->add_used() = twice.position().used(0);
  for (const JobProgress& bad : {backwards, beyond, twice}) {
    EXPECT_EQ(progress_.CatchUp(bad, {}, now_).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(progress_.CatchUp(At(6, 60), List({Decide(7, 60, 70)}), now_).ok());
  EXPECT_EQ(progress_.step(), 4u);
  EXPECT_EQ(progress_.position().used(0).end(), 40u);
}

TEST_F(TrainingProgressTest, ARetryRaisesTheAttemptAndUsesNothing) {
  const Verdict retry = Decide(1, 0, 10, 0, Verdict::RETRY);
  ASSERT_TRUE(progress_.Add(retry, now_).ok());
  ASSERT_TRUE(progress_.Add(retry, now_).ok());
  EXPECT_EQ(progress_.retried(), 1u);
  EXPECT_EQ(progress_.step(), 0u);
  EXPECT_EQ(progress_.position().used_size(), 0);
  // A decision of the attempt that is over comes too late.
  ASSERT_TRUE(progress_.Add(Decide(1, 0, 10), now_).ok());
  EXPECT_EQ(progress_.step(), 0u);
  Verdict second = Decide(1, 0, 10);
  second.set_attempt(1);
  ASSERT_TRUE(progress_.Add(second, now_).ok());
  EXPECT_EQ(progress_.step(), 1u);
}

TEST_F(TrainingProgressTest, SamplesThatAreUsedAlreadyAreRefusedWithoutEffect) {
  ASSERT_TRUE(progress_.Add(Decide(1, 0, 10), now_).ok());
  for (const Verdict& bad :
       {Decide(2, 5, 15), Decide(2, 95, 105), Decide(2, 20, 20), Decide(2, 10, 20, 1)}) {
    EXPECT_EQ(progress_.Add(bad, now_).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(progress_.step(), 1u);
    EXPECT_EQ(progress_.samples(), 10u);
  }
  Verdict none = Decide(2, 10, 20);
  none.clear_outcome();
  EXPECT_FALSE(progress_.Add(none, now_).ok());
}

TEST_F(TrainingProgressTest, EachSampleIsUsedOnceInEachEpochWhateverTheDivision) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 random(seed);
    const uint64_t samples = 1 + random() % 500;
    const uint32_t contributors = 1 + random() % 5;
    const uint64_t nominal = 1 + random() % 60;
    TrainingProgress progress;
    progress.Start(0, {}, samples);
    uint64_t step = 0;
    while (progress.position().epoch() < 3) {
      const auto division = Divide(progress.position(), samples, contributors, nominal);
      Verdict verdict;
      verdict.set_step(++step);
      verdict.set_outcome(random() % 4 == 0 ? Verdict::SKIP : Verdict::APPLY);
      verdict.set_data_epoch(progress.position().epoch());
      for (uint32_t i = 0; i < contributors; ++i) {
        // Some contributors drop out: what they would have used stays unused.
        if (i > 0 && random() % 8 == 0) continue;
        Share* share = verdict.add_shares();
        share->set_contributor(i);
        share->set_samples(Count(division[i]));
        for (const SampleRange& range : division[i]) *share->add_ranges() = range;
      }
      ASSERT_TRUE(progress.Add(verdict, now_).ok()) << "seed " << seed << " step " << step;
      ASSERT_LT(step, 10'000u);
    }
    EXPECT_EQ(progress.samples(), 3 * samples) << "seed " << seed;
  }
}

TEST_F(TrainingProgressTest, ThroughputIsThatOfTheLastSeconds) {
  EXPECT_EQ(progress_.SamplesPerSecond(now_), 0);
  uint64_t step = 0;
  uint64_t epoch = 0;
  const auto run = [&](absl::Duration each, int steps) {
    for (int i = 0; i < steps; ++i) {
      now_ += each;
      const uint64_t begin = step % 10 * 10;
      epoch = step / 10;
      ++step;
      ASSERT_TRUE(progress_.Add(Decide(step, begin, begin + 10, epoch), now_).ok());
    }
  };
  run(absl::Seconds(1), 5);
  EXPECT_DOUBLE_EQ(progress_.SamplesPerSecond(now_), 10);
  run(absl::Seconds(1), 100);
  EXPECT_DOUBLE_EQ(progress_.SamplesPerSecond(now_), 10);
  run(absl::Milliseconds(100), 200);
  EXPECT_NEAR(progress_.SamplesPerSecond(now_), 100, 1);
  EXPECT_DOUBLE_EQ(progress_.SecondsTraining(now_), 125);
  progress_.StopClock(now_);
  EXPECT_NEAR(progress_.SamplesPerSecond(now_ + absl::Seconds(5)), 100, 1);
  EXPECT_DOUBLE_EQ(progress_.SecondsTraining(now_ + absl::Hours(1)), 125);
}

TEST(WorkersFinishedTest, NamesOfPhasesAreBounded) {
  WorkersFinished finished;
  Member worker;
  worker.set_id(1);
  FinishRequest request;
  request.set_last_step(7);
  const auto refused = [&] {
    const absl::Status status = finished.Add(worker, request);
    EXPECT_FALSE(finished.has(1) || finished.begun());
    EXPECT_TRUE(finished.seconds().empty());
    return status.code() == absl::StatusCode::kInvalidArgument;
  };
  PhaseSeconds* const phase = request.add_seconds();
  phase->set_phase(std::string(WorkersFinished::kMostPhaseBytes + 1, 'x'));
  EXPECT_TRUE(refused());
  phase->set_phase("for\x1b[2Jward");
  EXPECT_TRUE(refused());
  for (size_t i = 0; i < WorkersFinished::kMostPhases; ++i) {
    request.add_seconds()->set_phase("phase " + std::to_string(i));
  }
  phase->set_phase(std::string(WorkersFinished::kMostPhaseBytes, 'x'));
  EXPECT_TRUE(refused());
  phase->set_phase("phase 0");
  EXPECT_TRUE(finished.Add(worker, request).ok());
  worker.set_id(2);
  EXPECT_TRUE(finished.Add(worker, request).ok()) << "the same ones";
  worker.set_id(3);
  request.add_seconds()->set_phase("another");
  EXPECT_EQ(finished.Add(worker, request).code(), absl::StatusCode::kInvalidArgument)
      << "of all workers";
}

}  // namespace
}  // namespace parley
