#include "worker/microbatch_seed.h"

#include <cstdint>
#include <set>
#include <vector>

#include "common/job/data_division.h"
#include "gtest/gtest.h"

namespace parley {
namespace {

JobConfig Job(uint32_t accumulate) {
  JobConfig job;
  job.set_seed(7);
  job.mutable_data()->set_batch(4);
  job.set_accumulate(accumulate);
  return job;
}

// Seeds of all microbatches of a step, worker by worker.
std::vector<uint64_t> Seeds(const DataPosition& position, uint32_t workers, uint32_t accumulate) {
  const JobConfig job = Job(accumulate);
  std::vector<uint64_t> seeds;
  for (const auto& ranges :
       Divide(position, /*training_samples=*/60, workers, NominalSamples(job))) {
    StepPlan plan;
    plan.data_epoch = position.epoch();
    plan.ranges = ranges;
    for (uint64_t k = 0; k * 4 < Count(ranges); ++k) seeds.push_back(MicrobatchSeed(job, plan, k));
  }
  return seeds;
}

SampleRange Range(uint64_t begin, uint64_t end) {
  SampleRange range;
  range.set_begin(begin);
  range.set_end(end);
  return range;
}

TEST(MicrobatchSeedTest, AStepDrawsTheSameHoweverManyWorkersDivideIt) {
  DataPosition position;
  position.set_epoch(2);
  *position.add_used() = Range(0, 20);
  *position.add_used() = Range(36, 40);
  const std::vector<uint64_t> alone = Seeds(position, 1, 8);
  EXPECT_EQ(alone.size(), 8);
  EXPECT_EQ(std::set<uint64_t>(alone.begin(), alone.end()).size(), 8);
  EXPECT_EQ(Seeds(position, 2, 4), alone);
  EXPECT_EQ(Seeds(position, 4, 2), alone);
  EXPECT_EQ(Seeds(position, 8, 1), alone);
}

TEST(MicrobatchSeedTest, AnotherDataEpochDrawsOtherNumbers) {
  DataPosition position;
  const std::vector<uint64_t> first = Seeds(position, 1, 2);
  position.set_epoch(1);
  const std::vector<uint64_t> second = Seeds(position, 1, 2);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_NE(first[i], second[i]);
}

TEST(MicrobatchSeedTest, ARangeThatBeginsWithinAMicrobatchDoesNotGiveItsSeed) {
  StepPlan plan;
  plan.ranges = {Range(2, 4), Range(10, 20)};
  // Samples 2, 3, 10, 11 and 12, 13, ...
  StepPlan later;
  later.ranges = {Range(12, 16)};
  EXPECT_EQ(MicrobatchSeed(Job(2), plan, 1), MicrobatchSeed(Job(1), later, 0));
}

}  // namespace
}  // namespace parley
