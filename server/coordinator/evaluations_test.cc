#include "server/coordinator/evaluations.h"

#include <gtest/gtest.h>

#include <cmath>

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
  ASSERT_TRUE(evaluations_.Add(Worker(1), Part(9, 50, 30)).ok());
  ASSERT_TRUE(evaluations_.Add(Worker(2), Part(9, 50, 30)).ok());
  // Another worker in the same place reports its own share: the first report counts.
  Member other = Worker(0);
  other.set_id(77);
  ASSERT_TRUE(evaluations_.Add(other, Part(7, 40, 40)).ok());
  EXPECT_EQ(evaluations_.Whole()[0].correct(), 65u);
  EXPECT_FALSE(evaluations_.Add(Worker(0), Part(7, 40, 40)).ok());
  EXPECT_EQ(evaluations_.Whole().size(), 1u);
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

TEST(EvaluationsWithoutTestSetTest, NothingIsTaken) {
  Evaluations evaluations;
  evaluations.Start(1, 0);
  EXPECT_FALSE(evaluations.Add(Worker(0), Part(1, 0, 0)).ok());
}

}  // namespace
}  // namespace parley
