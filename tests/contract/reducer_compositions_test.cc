// What one composition of a group leaves to the next: ranks that are lost, and steps given up.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>

#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "common/clock/steady_now.h"
#include "tests/contract/reducer_fixture.h"

namespace parley {
namespace {

// How far a rank is when it is lost.
enum class Point { kBeforeForm, kFormed, kOpened, kHalf, kAll, kDone };

TEST_P(ReducerContract, ARankThatIsLostAtAnyPointLeavesNothingToTheNextComposition) {
  uint64_t step = 0;
  uint64_t round = 0;
  for (const Point point : {Point::kBeforeForm, Point::kFormed, Point::kOpened, Point::kHalf,
                            Point::kAll, Point::kDone}) {
    SCOPED_TRACE(static_cast<int>(point));
    const uint32_t lost = static_cast<uint32_t>(point) % size();
    ++composition_;
    ++step;
    ++round;
    for (uint32_t rank = 0; rank < size(); ++rank) {
      if (rank == lost && point == Point::kBeforeForm) continue;
      ASSERT_TRUE(Form(rank).ok());
      if (rank == lost && point == Point::kFormed) continue;
      Open(rank, step, round);
      if (rank == lost && point == Point::kOpened) continue;
      if (rank == lost && point == Point::kHalf) {
        reducer(rank).Offer(kDouble);
        continue;
      }
      OfferAll(rank);
    }
    if (point == Point::kDone) {
      ExpectDone();
    } else if (point < Point::kAll) {
      for (uint32_t rank = 0; rank < size(); ++rank) {
        EXPECT_TRUE(rank == lost || !reducer(rank).done());
      }
    }
    // Its successor is another process. The others hear of it at different times, and end without
    // waiting for anybody.
    ranks_[lost] = Start(lost);
    ++composition_;
    ++round;
    const absl::Time begun = SteadyNow();
    for (uint32_t rank = size(); rank-- > 0;) ASSERT_TRUE(Form(rank).ok());
    EXPECT_LT(SteadyNow() - begun, absl::Seconds(10));
    DoStep(step, round);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ReducerContract, WhoIsStillOfTheFormerCompositionIsNotTaken) {
  FormAll();
  for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, 1, 1);
  OfferAll(0);  // and stays behind
  ++composition_;
  for (uint32_t rank = 1; rank < size(); ++rank) {
    ASSERT_TRUE(Form(rank).ok());
    Open(rank, 1, 2);
    OfferAll(rank);
  }
  absl::SleepFor(absl::Milliseconds(100));
  for (uint32_t rank = 0; rank < size(); ++rank) EXPECT_FALSE(reducer(rank).done());
  ASSERT_TRUE(Form(0).ok());
  Open(0, 1, 2);
  OfferAll(0);
  ExpectDone();
  for (const size_t tensor : {kBig, kSmall, kDouble}) ExpectSums(2, tensor, All());
}

TEST_P(ReducerContract, WhatARankHadOfferedBeforeItAbortedIsNotTakenLater) {
  FormAll();
  const uint32_t slow = size() - 1;
  for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, 1, 1);
  for (uint32_t rank = 0; rank < slow; ++rank) OfferAll(rank);
  reducer(0).Abort();
  for (const size_t tensor : {kBig, kSmall, kDouble}) Write(0, 2, tensor);
  OfferAll(slow);
  absl::SleepFor(absl::Milliseconds(100));
  for (uint32_t rank = 1; rank < size(); ++rank) {
    EXPECT_TRUE(ranks_[rank]->heard->TakeReduced().empty());
    EXPECT_FALSE(reducer(rank).done());
  }
}

TEST_P(ReducerContract, AMixtureOfTwoGradientsIsNeverTaken) {
  std::mt19937 random(5);
  int taken = 0;
  for (int round = 0; round < 60; ++round) {
    ++composition_;
    FormAll();
    for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, 1, 1);
    for (uint32_t rank = 0; rank < size(); ++rank) reducer(rank).Offer(kBig);
    // The last rank gives the step up, and writes its gradient again, while the others read it.
    const absl::Time until = SteadyNow() + absl::Microseconds(random() % 300);
    while (SteadyNow() < until) {
    }
    reducer(size() - 1).Open(1, 1);
    const absl::Span<std::byte> memory = ranks_[size() - 1]->made->gradient(kBig);
    std::memset(memory.data(), 0x55, memory.size());
    absl::SleepFor(absl::Milliseconds(5));
    for (uint32_t rank = 0; rank + 1 < size(); ++rank) {
      reducer(rank).Abort();
      if (ranks_[rank]->heard->TakeReduced().empty()) continue;
      ++taken;
      for (const Reducer::Range& range : RangesOf(kBig)) {
        if (range.rank != rank) continue;
        const auto* const values =
            reinterpret_cast<const float*>(ranks_[rank]->made->gradient(kBig).data() + range.begin);
        for (size_t i = 0; i < range.bytes / sizeof(float); ++i) {
          float sum = -0.0f;
          for (uint32_t each = 0; each < size(); ++each) {
            sum += static_cast<float>(Value(each, 1, kBig, range.begin / sizeof(float) + i));
          }
          ASSERT_EQ(values[i], sum) << "round " << round << ", rank " << rank;
        }
      }
    }
    ranks_[size() - 1]->heard->TakeReduced();
  }
  std::printf("taken whole: %d\n", taken);
}

TEST_P(ReducerContract, AnAbortedOneIsQuietAndCanBeFormedAgain) {
  FormAll();
  for (uint32_t rank = 0; rank < size(); ++rank) reducer(rank).Abort();
  for (uint32_t rank = 0; rank < size(); ++rank) {
    reducer(rank).Abort();
    reducer(rank).Offer(kBig);
    reducer(rank).Close();
    EXPECT_TRUE(reducer(rank).done());
    EXPECT_EQ(reducer(rank).Missing(), "");
  }
  ++composition_;
  FormAll();
  DoStep(1, 3);
}

}  // namespace
}  // namespace parley
