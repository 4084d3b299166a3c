#include "server/coordinator/targets.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace parley {
namespace {

TEST(TargetsTest, NamesEveryEndpointOfTheJob) {
  std::vector<Member> members(3);
  members[0].set_metrics_address("127.0.0.1:9001");
  members[2].set_metrics_address("127.0.0.1:9002");
  const auto json = nlohmann::json::parse(TargetsJson("digits", "127.0.0.1:9000", members));
  const auto expected = nlohmann::json::parse(R"([{
    "targets": ["127.0.0.1:9000", "127.0.0.1:9001", "127.0.0.1:9002"],
    "labels": {"job": "digits"}}])");
  EXPECT_EQ(json, expected);
}

TEST(TargetsTest, WhatIsNoUtf8DoesNotBreakTheFile) {
  std::vector<Member> members(1);
  members[0].set_metrics_address("\xff\xfe");
  EXPECT_FALSE(
      nlohmann::json::parse(TargetsJson("digits", "", members), nullptr, false).is_discarded());
}

}  // namespace
}  // namespace parley
