#include "common/daemon/command_line.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace parley {
namespace {

std::optional<int> Parse(std::vector<const char*> words, DaemonFlags& flags) {
  CLI::App app("test", "parley-test");
  AddDaemonFlags(app, flags, true);
  words.insert(words.begin(), "parley-test");
  return ParseCommandLine(app, static_cast<int>(words.size()), words.data());
}

TEST(CommandLine, ReadsTheDaemonsFlags) {
  DaemonFlags flags;
  EXPECT_EQ(Parse({"--job=j", "--coordinator", "file:x", "--log_format=json"}, flags),
            std::nullopt);
  EXPECT_EQ(flags.job, "j");
  EXPECT_EQ(flags.coordinator, "file:x");
  EXPECT_EQ(flags.listen, "127.0.0.1:0");
  EXPECT_EQ(flags.log_format, LogFormat::kJson);
}

TEST(CommandLine, WrongUsageIsTwoAndHelpIsZero) {
  DaemonFlags flags;
  EXPECT_EQ(Parse({}, flags), 2);
  EXPECT_EQ(Parse({"--job=j"}, flags), 2);
  EXPECT_EQ(Parse({"--job=j", "--coordinator=c", "--what"}, flags), 2);
  EXPECT_EQ(Parse({"--job=j", "--coordinator=c", "--log_format=xml"}, flags), 2);
  EXPECT_EQ(Parse({"--job=j", "--coordinator=c", "stray"}, flags), 2);
  EXPECT_EQ(Parse({"--help"}, flags), 0);
  EXPECT_EQ(Parse({"--version"}, flags), 0);
}

}  // namespace
}  // namespace parley
