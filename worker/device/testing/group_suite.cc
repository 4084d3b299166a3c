// GroupGradientPath, and ParameterPath's sharing, over FakeDevice and FakeGroup: a thread for each
// rank. Part of step_suite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "worker/device/testing/fake_group.h"
#include "worker/device/testing/group_rank.h"

namespace parley {
namespace {

using ::testing::IsEmpty;
using Rank = GroupRank;

// One thread for each rank.
void OnAll(std::vector<std::unique_ptr<Rank>>& ranks, const std::function<void(Rank&)>& run) {
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (const auto& rank : ranks) threads.emplace_back([&run, &rank] { run(*rank); });
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::unique_ptr<Rank>> Make(uint32_t count) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (uint32_t rank = 0; rank < count; ++rank) {
    ranks.push_back(std::make_unique<Rank>(rank, count));
  }
  return ranks;
}

TEST(GroupGradients, EachRankGetsTheSumsOfWhatItOwns) {
  for (const uint32_t count : {1, 2, 3, 8}) {
    auto ranks = Make(count);
    const std::string id = FakeGroup::MakeId();
    OnAll(ranks, [&](Rank& rank) {
      rank.Form(id);
      for (int step = 1; step <= 6; ++step) {
        rank.Send(step);
        const absl::Status status = rank.Deliver(step);
        ASSERT_TRUE(status.ok()) << status;
      }
    });
    // Each sum crosses the bus of one rank only, flags those of all.
    size_t copied = 0;
    for (const auto& rank : ranks) {
      EXPECT_THAT(rank->violations(), IsEmpty());
      copied += rank->copied_to_host();
    }
    size_t values = 0;
    for (const auto& bucket : Rank::Buckets(count)) values += bucket.values + count * bucket.flags;
    EXPECT_EQ(copied, 6 * values * sizeof(float));
  }
}

TEST(GroupGradients, SumsGoToTheirOwnerWithoutACopyOnTheHost) {
  auto ranks = Make(3);
  const std::string id = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.TakeSumsDirectly();
    rank.Form(id);
    for (int step = 1; step <= 6; ++step) {
      rank.Send(step);
      const absl::Status status = rank.Deliver(step);
      ASSERT_TRUE(status.ok()) << status;
    }
  });
  for (const auto& rank : ranks) EXPECT_THAT(rank->violations(), IsEmpty());
}

TEST(GroupGradients, ALostRankIsAnErrorAndAnotherGroupGoesOn) {
  auto ranks = Make(3);
  const std::string id = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.Form(id);
    rank.Send(1);
    ASSERT_TRUE(rank.Deliver(1).ok());
  });
  ranks[1] = nullptr;
  for (const size_t left : {0, 2}) {
    ranks[left]->Send(2);
    const absl::Status status = ranks[left]->Deliver(2);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(ranks[left]->path().IsReady()) << "so that whoever waits for it hears of it";
    if (left == 2) continue;
    EXPECT_TRUE(ranks[0]->stream().Abort().ok());  // rank 2 hears of rank 0 only, and ends
  }
  ranks[1] = std::make_unique<Rank>(1, 3);
  const std::string next = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.Form(next);
    rank.Send(2);
    const absl::Status status = rank.Deliver(2);
    ASSERT_TRUE(status.ok()) << status;
  });
  for (const auto& rank : ranks) EXPECT_THAT(rank->violations(), IsEmpty());
}

TEST(GroupGradients, WhatAFormerGroupHasLeftIsNotDelivered) {
  auto ranks = Make(2);
  const std::string id = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.Form(id);
    rank.Send(1);
    const absl::Time deadline = SteadyNow() + absl::Seconds(30);
    while (!rank.path().IsReady() && SteadyNow() < deadline) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_TRUE(rank.path().IsReady());
  });
  const std::string next = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.Form(next);
    rank.Send(2);
    const absl::Status status = rank.Deliver(2);
    ASSERT_TRUE(status.ok()) << status;
  });
  for (const auto& rank : ranks) EXPECT_THAT(rank->violations(), IsEmpty());
}

TEST(GroupGradients, AnAbortEndsTheWaitForTheOthersWhereverItIs) {
  auto ranks = Make(2);
  const std::string id = FakeGroup::MakeId();
  // While it looks for them.
  ranks[0]->Form(id);
  absl::Time began = SteadyNow();
  EXPECT_TRUE(ranks[0]->stream().Abort().ok());
  // While they do not send.
  OnAll(ranks, [&](Rank& rank) { rank.Form(id); });
  ranks[0]->Send(1);
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_FALSE(ranks[0]->path().IsReady());
  EXPECT_TRUE(ranks[0]->stream().Abort().ok());
  EXPECT_TRUE(ranks[1]->stream().Abort().ok());
  EXPECT_LT(SteadyNow() - began, absl::Seconds(15));
}

// Who waits for the device, which waits for a rank that does not come, cannot call Abort.
TEST(GroupGradients, AnotherCompositionEndsTheWaitForTheOthersByItself) {
  auto ranks = Make(2);
  const std::string id = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) { rank.Form(id); });
  std::thread hears([&] {
    absl::SleepFor(absl::Milliseconds(20));
    ranks[0]->HearOfAnother();
  });
  const absl::Status status = ranks[0]->ShareValues(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  hears.join();
  // Also while it looks for them.
  ranks[0]->Form(FakeGroup::MakeId());
  const absl::Time deadline = SteadyNow() + absl::Seconds(15);
  while (ranks[0]->stream().error().ok() && SteadyNow() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(ranks[0]->stream().error().code(), absl::StatusCode::kCancelled);
}

TEST(GroupValues, EachComesToAllDevicesAndCrossesTheBusOnce) {
  for (const uint32_t count : {1, 2, 3, 8}) {
    auto ranks = Make(count);
    const std::string id = FakeGroup::MakeId();
    size_t before = 0;
    for (const auto& rank : ranks) before += rank->copied_to_device();
    OnAll(ranks, [&](Rank& rank) {
      rank.Form(id);
      for (int step = 1; step <= 4; ++step) {
        const absl::Status status = rank.ShareValues(step);
        ASSERT_TRUE(status.ok()) << status;
      }
    });
    size_t copied = 0;
    for (const auto& rank : ranks) {
      EXPECT_THAT(rank->violations(), IsEmpty());
      copied += rank->copied_to_device();
    }
    EXPECT_EQ(copied - before, 4 * 2 * Rank::kValues * sizeof(float));
  }
}

TEST(GroupValues, TheyAndGradientsTakeTurns) {
  auto ranks = Make(3);
  const std::string id = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.Form(id);
    for (int step = 1; step <= 6; ++step) {
      absl::Status status = rank.ShareValues(step);
      ASSERT_TRUE(status.ok()) << status;
      rank.Send(step);
      status = rank.Deliver(step);
      ASSERT_TRUE(status.ok()) << status;
    }
  });
  for (const auto& rank : ranks) EXPECT_THAT(rank->violations(), IsEmpty());
}

TEST(GroupValues, ALostRankIsAnErrorAndAnotherGroupGoesOn) {
  auto ranks = Make(3);
  const std::string id = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.Form(id);
    ASSERT_TRUE(rank.ShareValues(1).ok());
  });
  ranks[1] = nullptr;
  for (const size_t left : {0, 2}) {
    const absl::Status status = ranks[left]->ShareValues(2);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    if (left == 2) continue;
    EXPECT_TRUE(ranks[0]->stream().Abort().ok());  // rank 2 hears of rank 0 only, and ends
  }
  ranks[1] = std::make_unique<Rank>(1, 3);
  const std::string next = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.Form(next);
    const absl::Status status = rank.ShareValues(2);
    ASSERT_TRUE(status.ok()) << status;
  });
  for (const auto& rank : ranks) EXPECT_THAT(rank->violations(), IsEmpty());
}

}  // namespace
}  // namespace parley
