#include "client/parley/member_metrics.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

// A worker's scrape after so many steps, of which each took 2 ms of forward and 1 ms of waiting.
MemberMetrics After(double steps, double cpu_seconds) {
  return MemberMetrics::Of(ParseMetrics(absl::StrCat(
      "parley_step_phase_duration_seconds_sum{phase=\"forward\",member=\"worker-0\"} ",
      steps * 0.002, "\nparley_step_phase_duration_seconds_count{phase=\"forward\"} ", steps,
      "\nparley_step_phase_duration_seconds_sum{phase=\"wait\"} ", steps * 0.001,
      "\nparley_step_phase_duration_seconds_count{phase=\"wait\"} ", steps,
      "\nparley_step_phase_duration_seconds_bucket{phase=\"wait\",le=\"+Inf\"} ", steps,
      "\nparley_staleness_steps_sum ", steps * 3, "\nparley_staleness_steps_count ", steps,
      "\nprocess_cpu_seconds_total ", cpu_seconds,
      "\nprocess_start_time_seconds 1000\nprocess_resident_memory_bytes 4096\n"
      "parley_pipeline_bubble_ratio 0.25\n")));
}

const absl::Time kNow = absl::FromUnixSeconds(1100);

TEST(MemberMetrics, AreThoseOfTheScrape) {
  const MemberMetrics metrics = After(10, 7);
  EXPECT_EQ(metrics.phase_seconds.size(), 2U);
  EXPECT_DOUBLE_EQ(metrics.phase_seconds.at("forward").sum, 0.02);
  EXPECT_EQ(metrics.phase_seconds.at("forward").count, 10);
  EXPECT_EQ(metrics.staleness.sum, 30);
  EXPECT_EQ(metrics.staleness.count, 10);
  EXPECT_EQ(metrics.cpu_seconds, 7);
  EXPECT_EQ(metrics.started_at, 1000);
  EXPECT_EQ(metrics.resident_bytes, 4096);
  EXPECT_EQ(metrics.bubble, 0.25);
  EXPECT_FALSE(MemberMetrics::Of({}).bubble);
}

TEST(MetricsWindow, OneScrapeGivesTheMeansSinceTheStart) {
  MetricsWindow window;
  EXPECT_FALSE(window.Look(7));
  window.See(7, kNow, After(10, 50));
  const auto look = window.Look(7);
  ASSERT_TRUE(look);
  EXPECT_DOUBLE_EQ(look->phase_seconds.at("forward"), 0.002);
  EXPECT_DOUBLE_EQ(look->phase_seconds.at("wait"), 0.001);
  EXPECT_DOUBLE_EQ(*look->staleness, 3);
  EXPECT_DOUBLE_EQ(*look->cpu, 0.5) << "50 s of the 100";
  EXPECT_EQ(look->resident_bytes, 4096);
  EXPECT_FALSE(window.Look(8));
}

TEST(MetricsWindow, MoreOfThemGiveThoseBetween) {
  MetricsWindow window;
  window.See(7, kNow, After(10, 50));
  MemberMetrics later = After(20, 56);
  later.phase_seconds["wait"].sum += 0.1;  // the last ten waited for 10 ms more each
  window.See(7, kNow + absl::Seconds(3), later);
  auto look = window.Look(7);
  EXPECT_NEAR(look->phase_seconds.at("wait"), 0.011, 1e-12);
  EXPECT_DOUBLE_EQ(*look->cpu, 2);
  // No step since: the means of all.
  window = MetricsWindow();
  window.See(7, kNow, later);
  window.See(7, kNow + absl::Seconds(3), later);
  look = window.Look(7);
  EXPECT_NEAR(look->phase_seconds.at("wait"), 0.006, 1e-12);
  EXPECT_DOUBLE_EQ(*look->cpu, 0);
}

TEST(MetricsWindow, WhatIsLongAgoCountsNoMore) {
  MetricsWindow window;
  window.See(7, kNow, After(0, 0));
  for (int second = 1; second <= 60; ++second) {
    MemberMetrics metrics = After(second, 0);
    metrics.cpu_seconds = second <= 40 ? 0 : second - 40;  // idle at first
    window.See(7, kNow + absl::Seconds(second), metrics);
  }
  EXPECT_DOUBLE_EQ(*window.Look(7)->cpu, 1);
}

TEST(MetricsWindow, WhoHasGoneIsForgotten) {
  MetricsWindow window;
  for (const uint64_t member : {1, 2, 3}) window.See(member, kNow, After(1, 1));
  window.Keep({2});
  EXPECT_FALSE(window.Look(1));
  EXPECT_TRUE(window.Look(2));
  EXPECT_FALSE(window.Look(3));
}

}  // namespace
}  // namespace parley
