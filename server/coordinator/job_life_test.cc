#include "server/coordinator/job_life.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

constexpr Phase kPhases[] = {GATHERING, PREPARING, TRAINING, SAVING, FINISHED, FAILED};

TEST(JobLifeTest, GoesThroughAllPhasesInOrder) {
  JobLife life;
  EXPECT_EQ(life.phase(), GATHERING);
  for (Phase phase : {PREPARING, TRAINING, SAVING, FINISHED}) {
    EXPECT_FALSE(life.ended());
    EXPECT_TRUE(life.Enter(phase));
    EXPECT_EQ(life.phase(), phase);
  }
  EXPECT_TRUE(life.ended());
}

TEST(JobLifeTest, GoesBackFromTheThreeBetween) {
  for (const int phases : {1, 2, 3}) {
    JobLife life;
    for (int i = 1; i <= phases; ++i) EXPECT_TRUE(life.Enter(kPhases[i]));
    EXPECT_TRUE(life.Enter(PREPARING));
    EXPECT_TRUE(life.Enter(TRAINING));
  }
}

TEST(JobLifeTest, ElevenTransitionsAreLegalAndNoOther) {
  int legal = 0;
  for (Phase from : kPhases) {
    for (Phase to : kPhases) {
      if (!JobLife::IsLegal(from, to)) continue;
      ++legal;
      EXPECT_TRUE(to == FAILED || to == from + 1 || (to == PREPARING && from != GATHERING))
          << Phase_Name(from) << " -> " << Phase_Name(to);
      EXPECT_NE(from, FINISHED);
      EXPECT_NE(from, FAILED);
    }
  }
  EXPECT_EQ(legal, 11);
}

TEST(JobLifeTest, AnIllegalTransitionChangesNothing) {
  JobLife life;
  EXPECT_FALSE(life.Enter(TRAINING));
  EXPECT_FALSE(life.Enter(GATHERING));
  EXPECT_EQ(life.phase(), GATHERING);
}

}  // namespace
}  // namespace parley
