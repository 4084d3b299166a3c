#include "worker/device/group_id.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

GroupIdExchange Exchange(uint32_t rank, uint32_t ranks, const std::string& test) {
  GroupIdExchange exchange;
  exchange.name = absl::StrCat("parley-group-id-test ", getpid(), " ", test);
  exchange.rank = rank;
  exchange.ranks = ranks;
  exchange.make_id = [] { return std::string("the id\0with a zero", 18); };
  return exchange;
}

absl::Time Soon() { return SteadyNow() + absl::Seconds(30); }

TEST(GroupId, AllRanksHaveTheOneThatRank0HasMade) {
  for (const uint32_t ranks : {1, 2, 8}) {
    std::vector<std::string> ids(ranks);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        // The last ones first.
        absl::SleepFor(absl::Milliseconds(3 * (ranks - rank)));
        ids[rank] = ExchangeGroupId(Exchange(rank, ranks, "all"), Soon()).value_or("none");
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& id : ids) EXPECT_EQ(id, std::string("the id\0with a zero", 18));
  }
}

TEST(GroupId, NobodyWaitsForOneThatDoesNotCome) {
  for (const uint32_t rank : {0, 1}) {
    const auto id =
        ExchangeGroupId(Exchange(rank, 2, "alone"), SteadyNow() + absl::Milliseconds(30));
    EXPECT_EQ(id.status().code(), absl::StatusCode::kDeadlineExceeded) << id.status();
    GroupIdExchange exchange = Exchange(rank, 2, "alone");
    exchange.cancelled = [] { return true; };
    EXPECT_EQ(ExchangeGroupId(exchange, Soon()).status().code(), absl::StatusCode::kCancelled);
  }
}

TEST(GroupId, WhatRank0CannotMakeIsItsError) {
  GroupIdExchange exchange = Exchange(0, 2, "none");
  exchange.make_id = [] { return absl::InternalError("no NCCL"); };
  EXPECT_EQ(ExchangeGroupId(exchange, Soon()).status(), absl::InternalError("no NCCL"));
}

}  // namespace
}  // namespace parley
