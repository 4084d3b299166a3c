#include "server/coordinator/evaluations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace parley {
namespace {

Member Worker(uint32_t ordinal) {
  Member member;
  member.set_role(WORKER);
  member.set_ordinal(ordinal);
  return member;
}

Evaluation Part(uint64_t version, uint64_t samples, uint64_t correct) {
  Evaluation part;
  part.set_version(version);
  part.set_epoch(1);
  part.set_samples(samples);
  part.set_correct(correct);
  part.set_correct_top5(samples);
  part.set_loss_sum(0.25 * samples);
  part.set_classes(true);
  return part;
}

class EvaluationsTest : public testing::Test {
 protected:
  void SetUp() override { evaluations_.Start(3, 100); }
  Evaluations evaluations_;
};

TEST_F(EvaluationsTest, PartsOfAllWorkersMakeAWholeOne) {
  ASSERT_TRUE(evaluations_.Add(Worker(2), Part(7, 20, 10)).ok());
  ASSERT_TRUE(evaluations_.Add(Worker(0), Part(7, 40, 30)).ok());
  EXPECT_TRUE(evaluations_.Whole().empty());
  ASSERT_TRUE(evaluations_.Add(Worker(1), Part(7, 40, 35)).ok());
  ASSERT_EQ(evaluations_.Whole().size(), 1u);
  const Evaluation whole = evaluations_.Whole()[0];
  EXPECT_EQ(whole.version(), 7u);
  EXPECT_EQ(whole.samples(), 100u);
  EXPECT_EQ(whole.correct(), 75u);
  EXPECT_EQ(whole.correct_top5(), 100u);
  EXPECT_DOUBLE_EQ(whole.loss_sum(), 25);
  EXPECT_TRUE(whole.classes());
}

TEST_F(EvaluationsTest, WhatIsLeftOutAddsUpBesideTheSamples) {
  Evaluation all_left_out = Part(7, 20, 0);
  all_left_out.set_correct_top5(0);
  all_left_out.set_loss_sum(0);
  all_left_out.set_left_out(20);
  Evaluation some = Part(7, 40, 30);
  some.set_correct_top5(30);
  some.set_left_out(10);
  ASSERT_TRUE(evaluations_.Add(Worker(0), all_left_out).ok());
  ASSERT_TRUE(evaluations_.Add(Worker(1), some).ok());
  ASSERT_TRUE(evaluations_.Add(Worker(2), Part(7, 40, 35)).ok());
  ASSERT_EQ(evaluations_.Whole().size(), 1u);
  EXPECT_EQ(evaluations_.Whole()[0].samples(), 100u);
  EXPECT_EQ(evaluations_.Whole()[0].left_out(), 30);
  some.set_version(8);
  for (const double left_out : {11.0, -1.0, std::nan("")}) {
    some.set_left_out(left_out);
    EXPECT_FALSE(evaluations_.Add(Worker(0), some).ok()) << left_out;
  }
}

TEST_F(EvaluationsTest, PartsThatDoNotAddUpAreNotWhole) {
  ASSERT_TRUE(evaluations_.Add(Worker(0), Part(7, 40, 30)).ok());
  ASSERT_TRUE(evaluations_.Add(Worker(1), Part(7, 40, 30)).ok());
  EXPECT_FALSE(evaluations_.Add(Worker(2), Part(7, 19, 10)).ok());
  EXPECT_FALSE(evaluations_.Add(Worker(2), Part(7, 21, 10)).ok());
  EXPECT_TRUE(evaluations_.Whole().empty());
  EXPECT_TRUE(evaluations_.Add(Worker(2), Part(7, 20, 10)).ok());
  EXPECT_EQ(evaluations_.Whole().size(), 1u);
}

TEST_F(EvaluationsTest, ARepeatedPartCountsOnceAndAContradictionIsRefused) {
  ASSERT_TRUE(evaluations_.Add(Worker(0), Part(7, 40, 30)).ok());
  EXPECT_TRUE(evaluations_.Add(Worker(0), Part(7, 40, 30)).ok());
  EXPECT_FALSE(evaluations_.Add(Worker(0), Part(7, 40, 31)).ok());
  EXPECT_FALSE(evaluations_.Add(Worker(1), Part(8, 40, 41)).ok()) << "more right than there are";
}

TEST_F(EvaluationsTest, OnceWorkersChangeOnlyTheSumSaysWhatIsWhole) {
  evaluations_.WorkersChanged();
  // Two have divided the set by another view than three.
  ASSERT_TRUE(evaluations_.Add(Worker(0), Part(7, 50, 30)).ok());
  ASSERT_TRUE(evaluations_.Add(Worker(2), Part(7, 50, 35)).ok());
  ASSERT_EQ(evaluations_.Whole().size(), 1u);
  // A part is lost; more parts than there are: nobody is blamed, and neither is told.
  ASSERT_TRUE(evaluations_.Add(Worker(0), Part(8, 50, 30)).ok());
  ASSERT_TRUE(evaluations_.Add(Worker(0), Part(9, 50, 30)).ok());
  ASSERT_TRUE(evaluations_.Add(Worker(1), Part(9, 60, 30)).ok());
  EXPECT_FALSE(evaluations_.Add(Worker(0), Part(9, 40, 40)).ok());
  // Another worker in the same place reports its own share: the first report counts.
  Member other = Worker(0);
  other.set_id(77);
  ASSERT_TRUE(evaluations_.Add(other, Part(7, 40, 40)).ok());
  EXPECT_EQ(evaluations_.Whole()[0].correct(), 65u);
  // Of what is whole the sum is all that is known: what comes still is as good as repeated.
  EXPECT_TRUE(evaluations_.Add(Worker(0), Part(7, 50, 30)).ok());
  EXPECT_TRUE(evaluations_.Add(Worker(0), Part(7, 40, 40)).ok());
  EXPECT_FALSE(evaluations_.Add(Worker(0), Part(7, 40, 41)).ok()) << "more right than there are";
  ASSERT_EQ(evaluations_.Whole().size(), 1u);
  EXPECT_EQ(evaluations_.Whole()[0].correct(), 65u);
  EXPECT_EQ(evaluations_.Incomplete(), (std::vector<uint64_t>{8, 9}));
}

TEST_F(EvaluationsTest, VersionsAreKeptApartAndInOrder) {
  for (uint64_t version : {9, 3}) {
    for (uint32_t worker : {0, 1}) {
      ASSERT_TRUE(evaluations_.Add(Worker(worker), Part(version, 50, version)).ok());
    }
    ASSERT_TRUE(evaluations_.Add(Worker(2), Part(version, 0, 0)).ok());
  }
  ASSERT_EQ(evaluations_.Whole().size(), 2u);
  EXPECT_EQ(evaluations_.Whole()[0].version(), 3u);
  EXPECT_EQ(evaluations_.Whole()[1].correct(), 18u);
}

CoordinatorState Written(const Evaluations& evaluations) {
  CoordinatorState state;
  evaluations.Write(state);
  return state;
}

TEST(EvaluationsRecordTest, OfWholeOnesItHasTheSums) {
  Evaluations evaluations;
  evaluations.Start(100, 1000);
  for (uint64_t version = 1; version <= 1000; ++version) {
    for (uint32_t worker = 0; worker < 100; ++worker) {
      ASSERT_TRUE(evaluations.Add(Worker(worker), Part(version, 10, worker % 10)).ok());
    }
  }
  const CoordinatorState state = Written(evaluations);
  EXPECT_LT(state.ByteSizeLong(), 200'000u);
  Evaluations next;
  next.Start(100, 1000);
  next.Read(state);
  ASSERT_EQ(next.Whole().size(), 1000u);
  EXPECT_EQ(next.Whole()[999].correct(), 450u);
  EXPECT_TRUE(next.Incomplete().empty());
  const uint64_t parts = next.parts();
  EXPECT_TRUE(next.Add(Worker(7), Part(500, 10, 7)).ok()) << "may be repeated";
  EXPECT_EQ(next.parts(), parts) << "nothing to record";
  EXPECT_EQ(Written(next).SerializeAsString(), state.SerializeAsString());
}

TEST(EvaluationsRecordTest, ThatOfAnEarlierReleaseIsRead) {
  CoordinatorState state;
  for (const auto& [version, workers] : {std::pair(7, 2), std::pair(8, 1)}) {
    for (int worker = 0; worker < workers; ++worker) {
      EvaluationPart& part = *state.add_evaluation_parts();
      part.set_worker(static_cast<uint32_t>(worker));
      *part.mutable_part() = Part(static_cast<uint64_t>(version), 50, 30);
    }
  }
  Evaluations evaluations;
  evaluations.Start(2, 100);
  evaluations.Read(state);
  ASSERT_EQ(evaluations.Whole().size(), 1u);
  EXPECT_EQ(evaluations.Whole()[0].correct(), 60u);
  EXPECT_EQ(evaluations.Incomplete(), std::vector<uint64_t>{8});
  EXPECT_EQ(Written(evaluations).evaluation_parts_size(), 1);
  ASSERT_TRUE(evaluations.Add(Worker(1), Part(8, 50, 31)).ok());
  ASSERT_EQ(evaluations.Whole().size(), 2u);
  EXPECT_EQ(evaluations.Whole()[1].correct(), 61u);
}

TEST_F(EvaluationsTest, OneThatLaterOnesHaveLeftBehindIsGivenUp) {
  evaluations_.WorkersChanged();
  ASSERT_TRUE(evaluations_.Add(Worker(0), Part(1, 50, 30)).ok());
  ASSERT_TRUE(evaluations_.Add(Worker(0), Part(2, 50, 30)).ok());
  const auto whole = [&](uint64_t version) {
    ASSERT_TRUE(evaluations_.Add(Worker(0), Part(version, 100, 30)).ok());
  };
  for (uint64_t version = 3; version < 3 + Evaluations::kLaterWhole - 1; ++version) whole(version);
  // One that is slow still comes in time.
  ASSERT_TRUE(evaluations_.Add(Worker(1), Part(2, 50, 30)).ok());
  ASSERT_EQ(evaluations_.Whole().size(), Evaluations::kLaterWhole);
  EXPECT_EQ(evaluations_.Whole()[0].version(), 2u);
  EXPECT_EQ(Written(evaluations_).evaluation_parts_size(), 0) << "that makes enough for version 1";
  ASSERT_TRUE(evaluations_.Add(Worker(1), Part(1, 50, 30)).ok()) << "nobody is blamed";
  EXPECT_EQ(evaluations_.Incomplete(), std::vector<uint64_t>{1});

  Evaluations next;
  next.Start(3, 100);
  next.Read(Written(evaluations_));
  EXPECT_EQ(next.Incomplete(), std::vector<uint64_t>{1});
  EXPECT_TRUE(next.Add(Worker(1), Part(1, 50, 30)).ok());
  EXPECT_EQ(next.Incomplete(), std::vector<uint64_t>{1});
  // What is made again is evaluated again.
  next.RollBack(0);
  EXPECT_TRUE(next.Incomplete().empty());
  EXPECT_TRUE(next.Whole().empty());
  ASSERT_TRUE(next.Add(Worker(1), Part(1, 50, 30)).ok());
  EXPECT_EQ(Written(next).evaluation_parts_size(), 1);
}

TEST(EvaluationsRecordTest, WhereNoneEverGetsWholeItStillHasALimit) {
  Evaluations evaluations;
  evaluations.Start(300, 300);
  for (uint64_t version = 1; version <= 250; ++version) {
    for (uint32_t worker = 0; worker < 299; ++worker) {
      ASSERT_TRUE(evaluations.Add(Worker(worker), Part(version, 1, 1)).ok());
    }
  }
  EXPECT_LE(static_cast<size_t>(Written(evaluations).evaluation_parts_size()),
            Evaluations::kMostParts);
  EXPECT_EQ(evaluations.Incomplete().size(), 250u);
  ASSERT_TRUE(evaluations.Add(Worker(299), Part(250, 1, 1)).ok());
  EXPECT_EQ(evaluations.Whole().size(), 1u);
}

TEST(EvaluationsWithoutTestSetTest, NothingIsTaken) {
  Evaluations evaluations;
  evaluations.Start(1, 0);
  EXPECT_FALSE(evaluations.Add(Worker(0), Part(1, 0, 0)).ok());
}

}  // namespace
}  // namespace parley
