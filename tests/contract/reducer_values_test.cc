// Values that ranks share with each other.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "common/clock/testing/becomes.h"
#include "tests/contract/reducer_fixture.h"

namespace parley {
namespace {

TEST_P(ReducerContract, WhatARankSharesAllOthersCanTake) {
  FormAll();
  for (uint64_t version = 0; version < 5; ++version) {
    for (uint32_t rank = 0; rank < size(); ++rank) ShareAll(rank, version);
    for (uint32_t rank = 0; rank < size(); ++rank) {
      for (uint32_t slice = 0; slice < 2 * size(); ++slice) {
        std::string got;
        if (slice % size() == rank) {
          EXPECT_EQ(Take(rank, slice, version, got), Reducer::Taken::kWithheld) << "its own";
          continue;
        }
        EXPECT_TRUE(
            Becomes([&] { return Take(rank, slice, version, got) == Reducer::Taken::kTaken; }));
        ASSERT_EQ(got, Contents(slice, version)) << "slice " << slice;
      }
    }
    DoStep(version + 1, version + 1);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ReducerContract, WhoWatchesARankIsToldWhenItShares) {
  FormAll();
  std::string got;
  const uint32_t slow = size() - 1;
  ShareAll(0, 3);
  ASSERT_TRUE(Becomes([&] { return Take(slow, 0, 3, got) == Reducer::Taken::kTaken; }));
  EXPECT_EQ(Take(0, slow, 3, got), Reducer::Taken::kPending);
  reducer(0).Watch(slow);
  // Once to look, and then when there is something.
  ASSERT_TRUE(Becomes([&] { return ranks_[0]->heard->shared() > 0; }));
  const int before = ranks_[0]->heard->shared();
  EXPECT_EQ(Take(0, slow, 3, got), Reducer::Taken::kPending);
  ShareAll(slow, 3);
  EXPECT_TRUE(Becomes([&] { return ranks_[0]->heard->shared() > before; }));
  EXPECT_EQ(Take(0, slow, 3, got), Reducer::Taken::kTaken);
  EXPECT_EQ(got, Contents(slow, 3));
  reducer(0).Watch(std::nullopt);
}

TEST_P(ReducerContract, WhatDoesNotComeIsAskedOfTheShards) {
  FormAll();
  std::string got;
  reducer(0).Withhold(Values(0, 3));
  EXPECT_TRUE(Becomes([&] { return Take(1, 0, 3, got) == Reducer::Taken::kWithheld; }));
  EXPECT_EQ(Take(0, 1, 3, got), Reducer::Taken::kPending);
  reducer(0).Watch(1);
  EXPECT_TRUE(Becomes([&] { return Take(0, 1, 3, got) == Reducer::Taken::kWithheld; }))
      << "it takes too long";
  const int before = ranks_[0]->heard->shared();
  EXPECT_TRUE(Becomes([&] { return ranks_[0]->heard->shared() > before; }));
  reducer(0).Watch(std::nullopt);
  EXPECT_EQ(Take(0, 1, 3, got), Reducer::Taken::kPending) << "another pull";
  reducer(0).Abort();
  EXPECT_EQ(Take(0, 1, 3, got), Reducer::Taken::kWithheld);
}

TEST_P(ReducerContract, ValuesOfAFormerCompositionAreNotTaken) {
  FormAll();
  std::string got;
  ShareAll(0, 3);
  ASSERT_TRUE(Becomes([&] { return Take(1, 0, 3, got) == Reducer::Taken::kTaken; }));
  ++composition_;
  FormAll();
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(Take(1, 0, 3, got), Reducer::Taken::kPending);
  ShareAll(0, 3);
  EXPECT_TRUE(Becomes([&] { return Take(1, 0, 3, got) == Reducer::Taken::kTaken; }));
}

}  // namespace
}  // namespace parley
