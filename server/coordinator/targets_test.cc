#include "server/coordinator/targets.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace parley {
namespace {

TEST(TargetsTest, NamesEveryEndpointOfTheJobAndWhereItsServerIs) {
  std::vector<Member> members(3);
  members[0].set_metrics_address("127.0.0.1:9001");
  members[0].set_role(SHARD);
  members[0].set_address("127.0.0.1:4001");
  members[2].set_metrics_address("127.0.0.1:9002");
  members[2].set_role(STAGE);
  members[2].set_ordinal(1);
  members[2].set_address("127.0.0.1:4002");
  const auto json =
      nlohmann::json::parse(TargetsJson("digits", "digits-2", "127.0.0.1:9000", members));
  const auto expected = nlohmann::json::parse(R"([
    {"targets": ["127.0.0.1:9000"], "labels": {"job": "digits", "run": "digits-2"}},
    {"targets": ["127.0.0.1:9001"],
     "labels": {"job": "digits", "run": "digits-2", "__parley_role": "SHARD",
                "__parley_ordinal": "0", "__parley_address": "127.0.0.1:4001"}},
    {"targets": ["127.0.0.1:9002"],
     "labels": {"job": "digits", "run": "digits-2", "__parley_role": "STAGE",
                "__parley_ordinal": "1", "__parley_address": "127.0.0.1:4002"}}])");
  EXPECT_EQ(json, expected);
}

TEST(TargetsTest, WhatIsNoUtf8DoesNotBreakTheFile) {
  std::vector<Member> members(1);
  members[0].set_metrics_address("\xff\xfe");
  EXPECT_FALSE(nlohmann::json::parse(TargetsJson("digits", "\xff", "", members), nullptr, false)
                   .is_discarded());
}

}  // namespace
}  // namespace parley
