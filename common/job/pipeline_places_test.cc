#include "common/job/pipeline_places.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

TEST(PipelinePlacesTest, PartZeroIsTheWorkerAndTheOthersAreItsStagesInOrder) {
  const PartPlace worker = PartPlaceOf(WORKER, 2, 3);
  EXPECT_EQ(worker.contributor, 2u);
  EXPECT_EQ(worker.part, 0u);
  const PartPlace stage = PartPlaceOf(STAGE, 7, 3);
  EXPECT_EQ(stage.contributor, 2u);
  EXPECT_EQ(stage.part, 2u);
}

TEST(PipelinePlacesTest, EachPlaceLeadsBackToItsMember) {
  for (const uint32_t stages : {1, 2, 5}) {
    for (uint32_t ordinal = 0; ordinal < 4 * stages; ++ordinal) {
      for (const Role role : {WORKER, STAGE}) {
        EXPECT_EQ(MemberPlaceOf(PartPlaceOf(role, ordinal, stages), stages),
                  (std::pair(role, ordinal)));
      }
    }
  }
}

}  // namespace
}  // namespace parley
