#include "client/parley/children.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/parley/log_tail.h"

namespace parley {
namespace {

SignalInbox& Signals() {
  static SignalInbox inbox;
  return inbox;
}

class ChildrenTest : public testing::Test {
 protected:
  ChildrenTest() {
    Signals();
    char name[] = "/tmp/parley-children.XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~ChildrenTest() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> Shell(const std::string& script) const {
    return {"/bin/sh", "-c", script};
  }
  std::string Log(const std::string& name) const { return folder_ + "/" + name + ".log"; }
  void Start(Children& children, const std::string& name, const std::string& script) {
    const auto status = children.Start(name, Log(name), Shell(script));
    ASSERT_TRUE(status.ok()) << status;
  }
  // The first line of a file, once there is one.
  static std::string WaitForLine(const std::string& path) {
    for (int i = 0; i < 2000; ++i) {
      std::string line;
      if (std::getline(std::ifstream(path) >> std::ws, line) && !line.empty()) return line;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return "";
  }
  static void WaitForAll(Children& children) {
    for (int i = 0; i < 200 && !children.AllEnded(); ++i) {
      Signals().Wait(absl::Milliseconds(50));
      children.Reap();
    }
  }
  static bool Runs(pid_t pid) {
    std::string word;
    std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
    for (int i = 0; i < 3; ++i)
      stat >> word;  // the third is the state; our programs' names are short
    return stat && word != "Z" && word != "X";
  }

  std::string folder_;
};

TEST_F(ChildrenTest, ExitStatusAndStderrAreKept) {
  Children children;
  Start(children, "one", "echo first >&2; echo the cause >&2; exit 2");
  Start(children, "two", "kill -KILL $$");
  WaitForAll(children);
  ASSERT_TRUE(children.AllEnded());
  EXPECT_EQ(children.all()[0].exit->code, 2);
  EXPECT_EQ(Describe(*children.all()[1].exit), "was ended by SIGKILL");
  EXPECT_EQ(LastLineOfFile(Log("one")), "the cause");
}

TEST_F(ChildrenTest, AProgramThatIsNotThereIsNamed) {
  Children children;
  const auto status = children.Start("one", Log("one"), {folder_ + "/nothing"});
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_NE(status.message().find(folder_ + "/nothing"), absl::string_view::npos) << status;
}

TEST_F(ChildrenTest, WhoIgnoresTermIsKilledAfterTheGrace) {
  Children children;
  Start(children, "stubborn", "trap '' TERM; echo up >&2; while :; do sleep 0.1; done");
  Start(children, "polite", "trap 'exit 75' TERM; echo up >&2; while :; do sleep 0.1; done");
  ASSERT_EQ(WaitForLine(Log("stubborn")), "up");
  ASSERT_EQ(WaitForLine(Log("polite")), "up");
  const absl::Time began = absl::Now();
  children.End(absl::Seconds(1), Signals());
  EXPECT_GE(absl::Now() - began, absl::Milliseconds(900));
  ASSERT_TRUE(children.AllEnded());
  EXPECT_EQ(children.all()[0].exit->signal, SIGKILL);
  EXPECT_EQ(children.all()[1].exit->code, 75);
}

TEST_F(ChildrenTest, TheGoingObjectTakesAllWithIt) {
  pid_t pid = 0;
  {
    Children children;
    Start(children, "stubborn", "trap '' TERM; echo up >&2; sleep 1000");
    ASSERT_EQ(WaitForLine(Log("stubborn")), "up");
    pid = children.all()[0].process.pid();
    ASSERT_TRUE(Runs(pid));
  }
  EXPECT_FALSE(Runs(pid));
}

TEST_F(ChildrenTest, ASignalForTheParentIsAnEventAndNotForTheChildren) {
  Children children;
  Start(children, "one", "echo up >&2; exec sleep 1000");
  ASSERT_EQ(WaitForLine(Log("one")), "up");
  kill(getpid(), SIGINT);
  EXPECT_EQ(Signals().Wait(absl::Seconds(10)), SIGINT);
  children.Reap();
  EXPECT_FALSE(children.AllEnded());
}

TEST_F(ChildrenTest, NothingIsLeftWhenTheParentIsKilled) {
  const pid_t parent = fork();
  if (parent == 0) {
    Children children;
    for (const char* name : {"one", "two"}) {
      Start(children, name, "trap '' TERM INT HUP; echo $$ >&2; exec sleep 1000");
    }
    while (true) pause();
  }
  const pid_t one = std::atoi(WaitForLine(Log("one")).c_str());
  const pid_t two = std::atoi(WaitForLine(Log("two")).c_str());
  ASSERT_GT(one, 1);
  ASSERT_GT(two, 1);
  ASSERT_TRUE(Runs(one) && Runs(two));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  for (int i = 0; i < 1000 && (Runs(one) || Runs(two)); ++i) absl::SleepFor(absl::Milliseconds(5));
  const bool left = Runs(one) || Runs(two);
  for (const pid_t pid : {one, two}) kill(pid, SIGKILL);
  EXPECT_FALSE(left);
}

TEST(LogTail, IsTheLastLineThatSaysSomething) {
  EXPECT_EQ(LastLine("a\nb\n\n  \n"), "b");
  EXPECT_EQ(LastLine("only"), "only");
  EXPECT_EQ(LastLine("\n"), "");
  EXPECT_EQ(LastLineOfFile("/nowhere/at/all"), "");
}

}  // namespace
}  // namespace parley
