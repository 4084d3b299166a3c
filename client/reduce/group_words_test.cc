#include "client/reduce/group_words.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

namespace parley {
namespace {

// A rank's words and gradients, and another one's view of them.
struct Rank {
  Rank() {
    gradients = *MemorySegment::Create(4096);
    words = *OwnWords::Make({0, 512});
    seen = *PeerWords::Make(*MemorySegment::OfPeer(words->segment()->fd()),
                            *MemorySegment::OfPeer(gradients->fd()), {512, 64});
  }
  std::shared_ptr<MemorySegment> gradients;
  std::unique_ptr<OwnWords> words;
  std::unique_ptr<PeerWords> seen;
};

TEST(GroupWordsTest, AReaderSeesTheStateOfItsOwnStepOnly) {
  Rank rank;
  EXPECT_EQ(rank.seen->Get(0, 1), GradientState::kPending);
  rank.words->Open(1, 0.5);
  rank.words->Set(0, GradientState::kReady);
  rank.words->Set(1, GradientState::kNone);
  EXPECT_EQ(rank.seen->weight(), 0.5);
  EXPECT_EQ(rank.seen->Get(0, 1), GradientState::kReady);
  EXPECT_EQ(rank.seen->Get(1, 1), GradientState::kNone);
  EXPECT_EQ(rank.seen->Get(0, 2), GradientState::kPending);
  rank.words->Open(2, 1);
  EXPECT_EQ(rank.seen->Get(0, 1), GradientState::kPending);
  EXPECT_EQ(rank.words->Get(0), GradientState::kPending);
}

TEST(GroupWordsTest, AReaderFindsOutThatGradientsMayHaveBeenWrittenMeanwhile) {
  Rank rank;
  rank.words->Open(1, 1);
  const uint64_t opens = rank.seen->opens();
  rank.words->Set(0, GradientState::kReady);
  EXPECT_TRUE(rank.seen->Stands(opens));
  rank.words->Open(1, 1);  // the same step again
  EXPECT_FALSE(rank.seen->Stands(opens));
  EXPECT_EQ(rank.seen->Get(0, 1), GradientState::kPending);
}

TEST(GroupWordsTest, WhatWasShownCountsNoMoreAfterTheEnd) {
  Rank rank;
  rank.words->Open(3, 1);
  rank.words->Set(0, GradientState::kReady);
  const uint64_t opens = rank.seen->opens();
  rank.words->End();
  EXPECT_FALSE(rank.seen->Stands(opens));
  EXPECT_FALSE(rank.seen->Stands(rank.seen->opens()));
  EXPECT_EQ(rank.seen->Get(0, 3), GradientState::kPending);
}

TEST(GroupWordsTest, EachEventRings) {
  Rank rank;
  uint32_t heard = rank.seen->bell();
  const auto rang = [&] { return std::exchange(heard, rank.seen->bell().load()) != heard; };
  rank.words->Open(1, 1);
  EXPECT_TRUE(rang());
  rank.words->Set(1, GradientState::kReady);
  EXPECT_TRUE(rang());
  rank.words->End();
  EXPECT_TRUE(rang());
}

TEST(GroupWordsTest, SegmentsThatDoNotFitAreRefused) {
  const auto gradients = *MemorySegment::Create(4096);
  const auto make = [&](const std::shared_ptr<MemorySegment>& words,
                        const std::vector<size_t>& bytes) {
    return PeerWords::Make(words, gradients, bytes).status().code();
  };
  const auto words = [](std::vector<uint64_t> offsets) {
    return (*OwnWords::Make(offsets))->segment();
  };
  EXPECT_EQ(make(words({0, 512}), {512, 64}), absl::StatusCode::kOk);
  EXPECT_EQ(make(words({0, 512}), {512}), absl::StatusCode::kInternal) << "another model";
  EXPECT_EQ(make(words({0, 4096}), {512, 64}), absl::StatusCode::kInternal) << "beyond the end";
  EXPECT_EQ(make(words({0, UINT64_MAX - 7}), {512, 64}), absl::StatusCode::kInternal);
  EXPECT_EQ(make(words({0, 513}), {512, 64}), absl::StatusCode::kInternal) << "not aligned";
  EXPECT_EQ(make(*MemorySegment::Create(4096), {512, 64}), absl::StatusCode::kInternal);
  EXPECT_EQ(make(words({0}), std::vector<size_t>(1000, 8)), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace parley
