#include "common/log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace parley {
namespace {

const absl::Time kTime = absl::FromUnixMillis(1700000000123);

TEST(LogLine, SaysWhenWhoAndWhat) {
  EXPECT_EQ(FormatLogLine(LogFormat::kText, kTime, LogLevel::kInfo, "worker-1", "joined the job",
                          {{"coordinator", "127.0.0.1:80"}, {"why", "a b"}, {"empty", ""}}),
            "2023-11-14T22:13:20.123Z info worker-1 joined the job coordinator=127.0.0.1:80 "
            "why=\"a b\" empty=\"\"");
}

TEST(LogLine, StaysOneLineWhateverIsInIt) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    const std::string line = FormatLogLine(format, kTime, LogLevel::kError, "x\ny", "m\n1",
                                           {{"key", "line\nbreak \"quote\" \xff"}});
    EXPECT_EQ(line.find("m\n"), std::string::npos) << line;
    EXPECT_EQ(line.substr(line.find("key")).find('\n'), std::string::npos) << line;
  }
}

TEST(LogLine, JsonHoldsTheSame) {
  const auto line = nlohmann::json::parse(FormatLogLine(LogFormat::kJson, kTime, LogLevel::kWarning,
                                                        "shard-0", "slow", {{"step", "17"}}));
  EXPECT_EQ(line["time"], "2023-11-14T22:13:20.123Z");
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["who"], "shard-0");
  EXPECT_EQ(line["message"], "slow");
  EXPECT_EQ(line["step"], "17");
}

TEST(LogLine, APairDoesNotTakeThePlaceOfWhoSpeaks) {
  const auto line = nlohmann::json::parse(FormatLogLine(LogFormat::kJson, kTime, LogLevel::kInfo,
                                                        "shard-0", "told", {{"who", "worker 1"}}));
  EXPECT_EQ(line["who"], "shard-0");
  EXPECT_EQ(line["who_"], "worker 1");
}

}  // namespace
}  // namespace parley
