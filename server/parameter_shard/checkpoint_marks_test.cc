#include "server/parameter_shard/checkpoint_marks.h"

#include <gtest/gtest.h>

#include <vector>

namespace parley {
namespace {

JobConfig Every(uint64_t steps) {
  JobConfig job;
  job.mutable_checkpoint()->set_every_steps(steps);
  return job;
}

// The steps of [begin, end) that are marked, if each one has ended before the next step.
std::vector<uint64_t> MarkedIn(CheckpointMarks& marks, uint64_t begin, uint64_t end) {
  std::vector<uint64_t> marked;
  for (uint64_t step = begin; step < end; ++step) {
    if (!marks.Mark(step, DataPosition())) continue;
    marked.push_back(step);
    marks.Follow(0, step);
  }
  return marked;
}

TEST(CheckpointMarks, MultiplesOfEverySteps) {
  CheckpointMarks marks(Every(3));
  EXPECT_EQ(MarkedIn(marks, 1, 11), (std::vector<uint64_t>{3, 6, 9}));
  CheckpointMarks none(Every(0));
  EXPECT_TRUE(MarkedIn(none, 1, 11).empty());
}

TEST(CheckpointMarks, OneAtATime) {
  CheckpointMarks marks(Every(2));
  EXPECT_FALSE(marks.Mark(1, DataPosition()));
  EXPECT_TRUE(marks.Mark(2, DataPosition()));
  for (uint64_t step = 3; step < 8; ++step) EXPECT_FALSE(marks.Mark(step, DataPosition()));
  marks.Follow(0, 2);
  // Those that were due meanwhile are one.
  EXPECT_TRUE(marks.Mark(9, DataPosition()));
  marks.Follow(0, 9);
  EXPECT_TRUE(marks.Mark(10, DataPosition()));
  EXPECT_EQ(marks.newest().version(), 10);
}

TEST(CheckpointMarks, TheNextOneWhenAsked) {
  CheckpointMarks marks(Every(0));
  EXPECT_FALSE(marks.Mark(1, DataPosition()));
  marks.Follow(1, 0);
  DataPosition position;
  position.set_epoch(7);
  EXPECT_TRUE(marks.Mark(2, position));
  EXPECT_EQ(marks.newest().position().epoch(), 7);
  // Said again, and asked for again while it is being written.
  marks.Follow(1, 0);
  marks.Follow(3, 0);
  EXPECT_FALSE(marks.Mark(3, DataPosition()));
  marks.Follow(3, 2);
  EXPECT_TRUE(marks.Mark(4, DataPosition()));
  marks.Follow(3, 4);
  EXPECT_FALSE(marks.Mark(5, DataPosition()));
}

TEST(CheckpointMarks, ARestartedCoordinatorCountsAnew) {
  CheckpointMarks marks(Every(0));
  marks.Follow(5, 0);
  EXPECT_TRUE(marks.Mark(1, DataPosition()));
  marks.Follow(0, 1);
  EXPECT_FALSE(marks.Mark(2, DataPosition()));
  marks.Follow(1, 1);
  EXPECT_TRUE(marks.Mark(3, DataPosition()));
}

}  // namespace
}  // namespace parley
