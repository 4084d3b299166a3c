#include "worker/graph_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace parley {
namespace {

JobConfig Job() {
  JobConfig job;
  job.set_cuda_graphs(true);
  return job;
}

TEST(GraphChoice, StepsLikeTheFirstOneBehindTheFirstFewAreGraphs) {
  GraphChoice choice(Job(), /*on_device=*/true, /*adds_up_on_devices=*/false, nullptr);
  uint64_t step = 0;
  for (size_t i = 0; i < GraphChoice::kFirstSteps; ++i) EXPECT_FALSE(choice.Choose(++step, 1, 64));
  EXPECT_FALSE(choice.Choose(++step, 1, 17)) << "the last one of an epoch";
  EXPECT_TRUE(choice.Choose(++step, 1, 64));
  EXPECT_FALSE(choice.Choose(++step, 2, 64));
  EXPECT_TRUE(choice.Choose(++step, 1, 64));
  choice.CannotRecord("a copy to the host");
  EXPECT_FALSE(choice.Choose(++step, 1, 64));
}

TEST(GraphChoice, WhereNoStepCanBeNoneIs) {
  JobConfig float16 = Job();
  float16.set_precision(FLOAT16_AUTOCAST);
  JobConfig unwanted = Job();
  unwanted.set_cuda_graphs(false);
  GraphChoice choices[] = {{Job(), false, false, nullptr},
                           {Job(), true, true, nullptr},
                           {float16, true, false, nullptr},
                           {unwanted, true, false, nullptr}};
  for (GraphChoice& choice : choices) {
    for (uint64_t step = 1; step < 10; ++step) EXPECT_FALSE(choice.Choose(step, 1, 64));
  }
}

}  // namespace
}  // namespace parley
