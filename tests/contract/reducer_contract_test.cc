// The sums, and what the suites (reducer_fixture.h) run over.
#include "tests/contract/reducer_contract.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock/testing/becomes.h"
#include "tests/contract/reducer_fixture.h"

namespace parley {
namespace {

// Of those that reduce one tensor after the other, in the order in which they come.
class ReducerOfTensors : public ReducerContract {};

TEST_P(ReducerContract, TheSumsAreThoseOfAllRanksTimesTheirWeights) {
  for (uint32_t rank = 0; rank < size(); ++rank) ranks_[rank]->weight = rank % 3 == 1 ? 0.3 : 1;
  FormAll();
  DoStep(1, 1);
  for (uint32_t rank = 0; rank < size(); ++rank) {
    EXPECT_EQ(ranks_[rank]->heard->TakeReduced().size(), 3u) << "each tensor once";
    EXPECT_TRUE(Becomes([&] { return ranks_[rank]->heard->all() == 1; }));
    EXPECT_EQ(reducer(rank).Missing(), "");
  }
}

TEST_P(ReducerContract, OnlyWhatARankOwnsIsWritten) {
  FormAll();
  DoStep(1, 1);
  for (uint32_t rank = 0; rank < size(); ++rank) {
    for (const Reducer::Range& range : RangesOf(kBig)) {
      if (range.rank == rank) continue;
      const auto* const values =
          reinterpret_cast<const float*>(ranks_[rank]->made->gradient(kBig).data() + range.begin);
      for (size_t i = 0; i < range.bytes / sizeof(float); ++i) {
        ASSERT_EQ(values[i], static_cast<float>(Value(rank, 1, kBig, range.begin / 4 + i)));
      }
    }
  }
}

TEST_P(ReducerContract, StepsFollowEachOther) {
  FormAll();
  for (uint64_t step = 1; step <= 20; ++step) {
    DoStep(step, step);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ReducerOfTensors, ATensorIsReducedAsSoonAsAllRanksHaveItsGradient) {
  FormAll();
  for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, 1, 1);
  for (uint32_t rank = 0; rank < size(); ++rank) reducer(rank).Offer(kSmall);
  for (uint32_t rank = 0; rank < size(); ++rank) {
    std::vector<std::pair<size_t, bool>> reduced;
    ASSERT_TRUE(Becomes([&] {
      reduced = ranks_[rank]->heard->TakeReduced();
      return !reduced.empty();
    }));
    EXPECT_EQ(reduced, (std::vector<std::pair<size_t, bool>>{{kSmall, true}}));
    EXPECT_FALSE(reducer(rank).done());
  }
  ExpectSums(1, kSmall, All());
}

TEST_P(ReducerContract, ThreadsOfBackwardOfferInAnyOrder) {
  FormAll();
  for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, 1, 1);
  for (uint32_t rank = 0; rank < size(); ++rank) {
    const std::vector<size_t> order = rank % 2 == 0 ? std::vector<size_t>{kBig, kSmall, kDouble}
                                                    : std::vector<size_t>{kDouble, kBig, kSmall};
    for (const size_t tensor : order) reducer(rank).Offer(tensor);
  }
  ExpectDone();
  for (const size_t tensor : {kBig, kSmall, kDouble}) ExpectSums(1, tensor, All());
}

TEST_P(ReducerContract, RanksWithoutAGradientAreLeftOut) {
  FormAll();
  for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, 1, 1);
  // Of big only rank 1 has one, of small all but rank 0, of double nobody.
  std::vector<uint32_t> others;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (rank == 1) reducer(rank).Offer(kBig);
    if (rank == 0) continue;
    reducer(rank).Offer(kSmall);
    others.push_back(rank);
  }
  for (uint32_t rank = 0; rank < size(); ++rank) reducer(rank).Close();
  ExpectDone();
  ExpectSums(1, kBig, {1});
  ExpectSums(1, kSmall, others);
  for (uint32_t rank = 0; rank < size(); ++rank) {
    for (const auto& [tensor, any] : ranks_[rank]->heard->TakeReduced()) {
      EXPECT_EQ(any, tensor != kDouble) << "tensor " << tensor;
    }
  }
}

TEST_P(ReducerOfTensors, WhoIsMissingIsNamed) {
  const uint32_t slow = size() - 1;
  for (uint32_t rank = 0; rank < slow; ++rank) ASSERT_TRUE(Form(rank).ok());
  const std::string who =
      absl::StrCat("rank ", slow, " (worker ", slow, " at ", ranks_[slow]->member.address());
  EXPECT_NE(reducer(0).Missing().find(who + ", pid 0) has not answered"), std::string::npos)
      << reducer(0).Missing();
  ASSERT_TRUE(Form(slow).ok());
  ASSERT_TRUE(Becomes([&] { return reducer(0).Missing().empty(); }));
  for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, 7, 1);
  for (uint32_t rank = 0; rank < slow; ++rank) OfferAll(rank);
  reducer(slow).Offer(kSmall);
  const std::string missing = " has not given 2 of its gradients of step 7";
  EXPECT_TRUE(Becomes([&] {
    const std::string text = reducer(0).Missing();
    return text.find(who) == 0 && text.find(missing) != std::string::npos;
  })) << reducer(0).Missing();
  EXPECT_FALSE(reducer(0).done());
  OfferAll(slow);
  ExpectDone();
}

std::string NameOf(const testing::TestParamInfo<std::tuple<ReducerKind, uint32_t>>& info) {
  return absl::StrCat(std::get<0>(info.param).name, std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Over, ReducerContract,
                         testing::Combine(testing::Values(SharedMemoryKind(), DevicesKind()),
                                          testing::Values(2u, 3u, 8u)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Over, ReducerOfTensors,
                         testing::Combine(testing::Values(SharedMemoryKind()),
                                          testing::Values(2u, 3u, 8u)),
                         NameOf);

}  // namespace
}  // namespace parley
