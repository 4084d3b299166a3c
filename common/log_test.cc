#include "common/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

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

// What this process says on stderr goes into a pipe that nobody reads yet and that is full.
class StuckStderr {
 public:
  StuckStderr() : own_(::dup(STDERR_FILENO)) {
    EXPECT_EQ(::pipe(ends_.data()), 0);
    EXPECT_GT(::fcntl(ends_[1], F_SETPIPE_SZ, 4096), 0);
    const std::string full(4095, '-');
    EXPECT_EQ(::write(ends_[1], (full + "\n").data(), 4096), 4096);
    ::dup2(ends_[1], STDERR_FILENO);
    ::close(ends_[1]);
    in_ = ::fdopen(ends_[0], "r");
  }
  ~StuckStderr() {
    ::dup2(own_, STDERR_FILENO);
    ::close(own_);
    ::fclose(in_);
  }
  // The lines that have come, until one that has this in it.
  std::vector<std::string> ReadTo(const std::string& last) {
    std::vector<std::string> lines;
    std::array<char, 8192> line;
    while (lines.empty() || lines.back().find(last) == std::string::npos) {
      if (::fgets(line.data(), line.size(), in_) == nullptr) break;
      lines.emplace_back(line.data());
    }
    return lines;
  }

 private:
  const int own_;
  std::array<int, 2> ends_ = {-1, -1};
  FILE* in_ = nullptr;
};

TEST(LogTest, WhoLogsGoesOnThoughNothingIsWrittenAndTheRestIsCounted) {
  StuckStderr pipe;
  Log log(LogFormat::kText, "shard-0");
  const std::string much(1000, 'x');
  for (int i = 0; i < 1000; ++i) log.Info(much);  // in a second, not in a thousand
  EXPECT_FALSE(log.Last("the last line"));
  const std::vector<std::string> lines = pipe.ReadTo("the last line");
  EXPECT_GT(lines.size(), 200u);
  EXPECT_LT(lines.size(), 400u);
  log.Info("back");
  const std::string lost = pipe.ReadTo("back").back();
  EXPECT_NE(lost.find(absl::StrCat("back lines_lost_before=", 1002 - lines.size())),
            std::string::npos)
      << lost;
}

}  // namespace
}  // namespace parley
