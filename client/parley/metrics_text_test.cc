#include "client/parley/metrics_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace parley {
namespace {

TEST(ParseMetrics, ReadsWhatOurProcessesServe) {
  const auto samples = ParseMetrics(
      "# HELP parley_step The last decided step.\n"
      "# TYPE parley_step gauge\n"
      "parley_step{job=\"small\",role=\"worker\",member=\"worker-0\"} 12\n"
      "parley_step_phase_duration_seconds_bucket{phase=\"push\",le=\"+Inf\"} 7\n"
      "parley_step_phase_duration_seconds_sum{phase=\"push\"} 1.5e-3\n");
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_EQ(samples[0].name, "parley_step");
  EXPECT_EQ(samples[0].labels.at("member"), "worker-0");
  EXPECT_EQ(samples[0].labels.size(), 3U);
  EXPECT_EQ(samples[0].value, 12);
  EXPECT_EQ(samples[1].labels.at("le"), "+Inf");
  EXPECT_EQ(samples[2].value, 0.0015);
}

TEST(ParseMetrics, ReadsAllThatTheFormatAllows) {
  const auto samples = ParseMetrics(
      "\n"
      "no_labels 1\r\n"
      "  spaces { a = \"b\" , c=\"d\", }  -2   1395066363000\n"
      "quoted{text=\"a \\\"b\\\" \\\\ \\n}\"} +Inf\n"
      "recorded:by_rule NaN\n"
      "the_last 5");
  ASSERT_EQ(samples.size(), 5U);
  EXPECT_TRUE(samples[0].labels.empty());
  EXPECT_EQ(samples[0].value, 1);
  EXPECT_EQ(samples[1].name, "spaces");
  EXPECT_EQ(samples[1].labels, (std::map<std::string, std::string>{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(samples[1].value, -2);
  EXPECT_EQ(samples[2].labels.at("text"), "a \"b\" \\ \n}");
  EXPECT_TRUE(std::isinf(samples[2].value));
  EXPECT_EQ(samples[3].name, "recorded:by_rule");
  EXPECT_TRUE(std::isnan(samples[3].value));
  EXPECT_EQ(samples[4].value, 5);
}

TEST(ParseMetrics, LeavesOutWhatItCannotRead) {
  for (const char* line :
       {"", "# comment 1", "name", "name{", "name{a", "name{a=", "name{a=\"b", "name{a=\"b\\",
        "name{a=b} 1", "name{=\"b\"} 1", "name{a=\"b\"} one", "{a=\"b\"} 1", "<html> 1"}) {
    EXPECT_TRUE(ParseMetrics(line).empty()) << line;
    const auto with_more = ParseMetrics(std::string(line) + "\ngood 1\n");
    EXPECT_EQ(with_more.size(), 1U) << line;
  }
}

// No prefix of a text is more than its lines.
TEST(ParseMetrics, SurvivesACutAnywhere) {
  const std::string text = "a{b=\"c\\\\\",d=\"\\\"\"} 1e3 5\nx 2\n# y\nz{} 3\n";
  ASSERT_EQ(ParseMetrics(text).size(), 3U);
  for (size_t size = 0; size <= text.size(); ++size) {
    EXPECT_LE(ParseMetrics(text.substr(0, size)).size(), 3U);
  }
}

}  // namespace
}  // namespace parley
