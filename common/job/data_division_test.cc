#include "common/job/data_division.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace parley {
namespace {

JobConfig Job(uint32_t workers, uint32_t batch, uint32_t accumulate, uint64_t epochs) {
  JobConfig job;
  job.mutable_cluster()->set_workers(workers);
  job.mutable_data()->set_batch(batch);
  job.set_accumulate(accumulate);
  job.set_epochs(epochs);
  return job;
}

SampleRange Range(uint64_t begin, uint64_t end) {
  SampleRange range;
  range.set_begin(begin);
  range.set_end(end);
  return range;
}

TEST(DataDivision, AStepsPlaceIsWhatOfTheDataIsUsed) {
  JobConfig job = Job(2, 5, 2, 9);
  DataPosition position;
  position.set_epoch(3);
  *position.add_used() = Range(0, 20);
  *position.add_used() = Range(40, 60);
  SchedulePlace place = PlaceInData(job, position, 80, 2);
  EXPECT_EQ(place.epochs_done(), 3.5);
  EXPECT_EQ(place.epochs(), 0.25);
  EXPECT_EQ(PlaceInData(job, position, 80, 9).epochs(), 0.5) << "no more is left";
  job.mutable_consistency()->mutable_sync()->set_backup(1);
  EXPECT_EQ(PlaceInData(job, position, 80, 2).epochs(), 0.125) << "one does not count";
  EXPECT_EQ(PlaceInData(job, position, 0, 2).epochs_done(), 0) << "no data";
}

// Counts how often each sample is used, over every epoch of a job, for sizes drawn at random.
TEST(DataDivision, EverySampleOfAnEpochIsUsedExactlyOnce) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    const uint32_t workers = 1 + random() % 7;
    const uint32_t batch = 1 + random() % 40;
    const uint32_t accumulate = 1 + random() % 3;
    const uint64_t samples = 1 + random() % 500;
    const uint64_t epochs = 1 + random() % 3;
    const JobConfig job = Job(workers, batch, accumulate, epochs);
    const uint64_t nominal = NominalSamples(job);
    ASSERT_EQ(nominal, uint64_t{batch} * accumulate);

    DataPosition position;
    uint64_t steps = 0;
    for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
      std::vector<int> used(samples);
      while (position.epoch() == epoch) {
        ASSERT_FALSE(IsDone(job, position, steps));
        const auto division = Divide(position, samples, workers, nominal);
        ASSERT_EQ(division.size(), workers);
        std::vector<SampleRange> all;
        bool less = false;
        for (const auto& ranges : division) {
          const uint64_t count = Count(ranges);
          ASSERT_LE(count, nominal);
          ASSERT_TRUE(!less || count == 0) << "only the first contributors get what remains";
          less = count < nominal;
          for (const SampleRange& range : ranges) {
            for (uint64_t at = range.begin(); at < range.end(); ++at) ++used[at];
            all.push_back(range);
          }
        }
        ASSERT_GT(Count(all), 0U);
        ASSERT_TRUE(MarkUsed(position, epoch, all, samples).ok());
        ++steps;
      }
      ASSERT_EQ(used, std::vector<int>(samples, 1));
      ASSERT_EQ(position.used_size(), 0);
    }
    ASSERT_TRUE(IsDone(job, position, steps));
    ASSERT_EQ(TotalSteps(job, samples), steps);
  }
}

// A contributor that is taken out leaves its ranges unused; they are divided again, with another
// number of contributors.
TEST(DataDivision, WhatAVerdictLeftOutIsDividedAgain) {
  std::mt19937 random(12);
  for (int trial = 0; trial < 200; ++trial) {
    const uint64_t samples = 1 + random() % 300;
    DataPosition position;
    std::vector<int> used(samples);
    while (position.epoch() == 0) {
      const auto division = Divide(position, samples, 1 + random() % 5, 1 + random() % 20);
      std::vector<SampleRange> counted;
      for (const auto& ranges : division) {
        if (random() % 3 == 0) continue;
        counted.insert(counted.end(), ranges.begin(), ranges.end());
      }
      for (const SampleRange& range : counted) {
        for (uint64_t at = range.begin(); at < range.end(); ++at) ++used[at];
      }
      ASSERT_TRUE(MarkUsed(position, 0, counted, samples).ok());
      for (int i = 1; i < position.used_size(); ++i) {
        ASSERT_LT(position.used(i - 1).end(), position.used(i).begin()) << "sorted, not adjacent";
      }
    }
    ASSERT_EQ(used, std::vector<int>(samples, 1));
  }
}

// The positions that a division hands out, in its order.
std::vector<uint64_t> Positions(const std::vector<std::vector<SampleRange>>& division) {
  std::vector<uint64_t> positions;
  for (const auto& ranges : division) {
    for (const SampleRange& range : ranges) {
      for (uint64_t at = range.begin(); at < range.end(); ++at) positions.push_back(at);
    }
  }
  return positions;
}

TEST(DataDivision, HolesComeAfterTheRestOfTheEpoch) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const uint64_t samples = 1 + random() % 200;
    std::vector<bool> used(samples);
    DataPosition position;
    for (int i = 0; i < 5; ++i) {
      const uint64_t begin = random() % samples;
      const uint64_t end = begin + 1 + random() % std::min<uint64_t>(samples - begin, 20);
      if (std::count(used.begin() + begin, used.begin() + end, true) != 0) continue;
      ASSERT_TRUE(MarkUsed(position, 0, {Range(begin, end)}, samples).ok());
      if (position.epoch() != 0) break;
      std::fill(used.begin() + begin, used.begin() + end, true);
    }
    if (position.epoch() != 0) continue;
    std::vector<uint64_t> expected;
    const uint64_t after = samples - (std::find(used.rbegin(), used.rend(), true) - used.rbegin());
    for (uint64_t at = after; at < samples; ++at) expected.push_back(at);
    for (uint64_t at = 0; at < after; ++at) {
      if (!used[at]) expected.push_back(at);
    }
    const uint32_t contributors = 1 + random() % 6;
    const uint64_t nominal = 1 + random() % 30;
    expected.resize(std::min<uint64_t>(expected.size(), contributors * nominal));
    ASSERT_EQ(Positions(Divide(position, samples, contributors, nominal)), expected);
  }
}

// As the step leader of a job with backups counts contributors: always the slow ones' late, but for
// those that it has to wait for.
TEST(DataDivision, WithBackupsTheEpochEndsThoughTheSameOnesAreAlwaysLate) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const uint32_t workers = 2 + random() % 5;
    JobConfig job = Job(workers, 1 + random() % 9, 1, 1);
    job.mutable_consistency()->mutable_sync()->set_backup(1 + random() % (workers - 1));
    const uint64_t samples = 1 + random() % 300;
    const uint32_t least = LeastCounted(job, workers);
    ASSERT_EQ(least, workers - job.consistency().sync().backup());
    std::vector<uint32_t> by_speed(workers);
    std::iota(by_speed.begin(), by_speed.end(), 0);
    std::shuffle(by_speed.begin(), by_speed.end(), random);
    std::vector<int> times(samples);
    DataPosition position;
    uint64_t steps = 0;
    while (position.epoch() == 0) {
      const auto division = Divide(position, samples, workers, NominalSamples(job));
      std::vector<SampleRange> counted;
      uint32_t with_data = 0;
      for (const uint32_t worker : by_speed) {
        if (division[worker].empty() || with_data == least) continue;
        ++with_data;
        counted.insert(counted.end(), division[worker].begin(), division[worker].end());
      }
      for (const SampleRange& range : counted) {
        for (uint64_t at = range.begin(); at < range.end(); ++at) ++times[at];
      }
      ASSERT_TRUE(MarkUsed(position, 0, counted, samples).ok());
      ++steps;
    }
    ASSERT_EQ(times, std::vector<int>(samples, 1));
    // Whoever is slow: as many as if there were only those that a step counts.
    ASSERT_EQ(steps, TotalSteps(job, samples));
  }
}

TEST(DataDivision, AJobOfStepsEndsWithItsSteps) {
  JobConfig job = Job(2, 10, 1, 1);
  job.set_steps(17);
  job.clear_epochs();
  EXPECT_EQ(TotalSteps(job, 5), 17U);
  DataPosition position;
  position.set_epoch(99);
  EXPECT_FALSE(IsDone(job, position, 16));
  EXPECT_TRUE(IsDone(job, position, 17));
}

TEST(DataDivision, TotalStepsDoesNotOverflow) {
  EXPECT_EQ(TotalSteps(Job(1, 1, 1, ~uint64_t{0}), 1000), ~uint64_t{0});
}

TEST(DataDivision, MarkUsedRefusesWhatCannotBe) {
  DataPosition position;
  position.set_epoch(3);
  ASSERT_TRUE(MarkUsed(position, 3, {Range(10, 20)}, 100).ok());
  const std::string before = position.SerializeAsString();
  const auto refused = [&](uint64_t epoch, const std::vector<SampleRange>& ranges) {
    const absl::Status status = MarkUsed(position, epoch, ranges, 100);
    return status.code() == absl::StatusCode::kInvalidArgument &&
           position.SerializeAsString() == before;
  };
  EXPECT_TRUE(refused(2, {Range(30, 40)})) << "an epoch that is over";
  EXPECT_TRUE(refused(4, {Range(30, 40)})) << "an epoch to come";
  EXPECT_TRUE(refused(3, {Range(30, 30)})) << "empty";
  EXPECT_TRUE(refused(3, {Range(40, 30)})) << "backwards";
  EXPECT_TRUE(refused(3, {Range(95, 101)})) << "beyond the set";
  EXPECT_TRUE(refused(3, {Range(19, 21)})) << "used before";
  EXPECT_TRUE(refused(3, {Range(0, 100)})) << "used before, all around";
  EXPECT_TRUE(refused(3, {Range(50, 60), Range(55, 65)})) << "twice at once";
  EXPECT_TRUE(refused(3, {Range(50, 60), Range(50, 60)})) << "the same twice";
  EXPECT_TRUE(MarkUsed(position, 3, {Range(50, 60), Range(20, 30), Range(0, 10)}, 100).ok());
  EXPECT_EQ(position.used_size(), 2);
}

TEST(DataDivision, NobodyAndNothingDivideToNothing) {
  EXPECT_TRUE(Divide({}, 100, 0, 10).empty());
  EXPECT_EQ(Count(Divide({}, 100, 1, 0)[0]), 0U);
  EXPECT_EQ(Count(Divide({}, 0, 1, 10)[0]), 0U);
}

TEST(EpochOrder, IsAPermutationOfItsOwnForEachSeedAndEpoch) {
  std::vector<uint64_t> sorted(1000);
  std::iota(sorted.begin(), sorted.end(), 0);
  std::vector<std::vector<uint64_t>> orders;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (uint64_t epoch = 0; epoch < 4; ++epoch) {
      std::vector<uint64_t> order = EpochOrder(seed, epoch, 1000, true);
      EXPECT_EQ(order, EpochOrder(seed, epoch, 1000, true));
      orders.push_back(order);
      std::sort(order.begin(), order.end());
      EXPECT_EQ(order, sorted);
    }
  }
  std::sort(orders.begin(), orders.end());
  EXPECT_EQ(std::unique(orders.begin(), orders.end()), orders.end());
  EXPECT_EQ(EpochOrder(5, 5, 1000, false), sorted);
  EXPECT_TRUE(EpochOrder(1, 1, 0, true).empty());
}

// Each sample comes first in about the same number of epochs.
TEST(EpochOrder, IsFair) {
  constexpr int kSamples = 10;
  constexpr int kEach = 500;
  constexpr int kEpochs = kSamples * kEach;
  std::vector<int> first(kSamples);
  for (int epoch = 0; epoch < kEpochs; ++epoch) ++first[EpochOrder(1, epoch, kSamples, true)[0]];
  for (const int count : first) EXPECT_NEAR(count, kEach, 110);  // 5 deviations
}

// A run that is resumed on another machine or by a later release draws the same order. Values
// computed apart, in Python.
TEST(EpochOrder, IsTheSameEverywhere) {
  EXPECT_EQ(EpochOrder(1, 0, 8, true), (std::vector<uint64_t>{1, 3, 0, 7, 4, 2, 6, 5}));
  EXPECT_EQ(EpochOrder(42, 3, 8, true), (std::vector<uint64_t>{3, 7, 0, 1, 4, 2, 6, 5}));
}

}  // namespace
}  // namespace parley
