#include "client/parley/children.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/parley/log_tail.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

SignalInbox& Signals() {
  static SignalInbox inbox;
  return inbox;
}

// A pipe with a name, from the processes that the test starts to the test, which waits for them
// without looking again and again.
class NamedPipe {
 public:
  explicit NamedPipe(std::string path) : path_(std::move(path)) {
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
    fd_ = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    EXPECT_GE(fd_, 0);
  }
  ~NamedPipe() { close(fd_); }
  NamedPipe(const NamedPipe&) = delete;
  NamedPipe& operator=(const NamedPipe&) = delete;

  // For a script: keeps the pipe open as its descriptor 3 and says so.
  std::string Hold() const { return "exec 3>" + path_ + "; echo $$ >&3; "; }

  // The next line that one of them writes; "" where none comes in time, or can come.
  std::string ReadLine() {
    const absl::Time deadline = SteadyNow() + kPatience;
    while (text_.find('\n') == std::string::npos) {
      if (!Wait(POLLIN, deadline)) return "";
      char bytes[100];
      const ssize_t count = read(fd_, bytes, sizeof(bytes));
      if (count > 0) text_.append(bytes, static_cast<size_t>(count));
    }
    const size_t end = text_.find('\n');
    const std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    return line;
  }

  // Whether all that held it have ended in time; at least one has held it.
  bool AwaitClosed() { return Wait(POLLHUP, SteadyNow() + kPatience); }

 private:
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  bool Wait(short event, absl::Time deadline) {
    while (true) {
      const absl::Duration left = deadline - SteadyNow();
      if (left <= absl::ZeroDuration()) return false;
      pollfd pipe = {fd_, static_cast<short>(event & POLLIN), 0};  // POLLHUP comes unasked
      // A signal may end it early.
      const auto most = static_cast<int>(absl::ToInt64Milliseconds(left) + 1);
      if (poll(&pipe, 1, most) > 0) return (pipe.revents & event) != 0;
    }
  }

  const std::string path_;
  int fd_ = -1;
  std::string text_;
};

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

TEST_F(ChildrenTest, ExitStatusAndWhatWasSaidAreKept) {
  Children children;
  Start(children, "one", "echo accuracy; echo first >&2; echo the cause >&2; exit 2");
  Start(children, "two", "kill -KILL $$");
  WaitForAll(children);
  ASSERT_TRUE(children.AllEnded());
  EXPECT_EQ(children.all()[0].exit->code, 2);
  EXPECT_EQ(Describe(*children.all()[1].exit), "was ended by SIGKILL");
  EXPECT_EQ(LastLineOfFile(Log("one")), "the cause");
  std::string said;
  std::getline(std::ifstream(Log("one")), said);
  EXPECT_EQ(said, "accuracy") << "a program of one's own tells on stdout how well it was";
}

TEST_F(ChildrenTest, AProgramThatIsNotThereIsNamed) {
  Children children;
  const auto status = children.Start("one", Log("one"), {folder_ + "/nothing"});
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_NE(status.message().find(folder_ + "/nothing"), absl::string_view::npos) << status;
}

TEST_F(ChildrenTest, WhoIgnoresItIsKilledAfterTheGrace) {
  Children children;
  NamedPipe pipe(folder_ + "/pipe");
  const std::string work = pipe.Hold() + "while :; do sleep 0.1; done";
  Start(children, "stubborn", "trap '' INT; " + work);
  Start(children, "polite", "trap 'exit 75' INT; " + work);
  ASSERT_NE(pipe.ReadLine(), "");
  ASSERT_NE(pipe.ReadLine(), "");
  const absl::Time began = SteadyNow();
  EXPECT_TRUE(children.End(absl::Seconds(1), Signals())) << "one was killed";
  EXPECT_GE(SteadyNow() - began, absl::Milliseconds(900));
  ASSERT_TRUE(children.AllEnded());
  EXPECT_EQ(children.all()[0].exit->signal, SIGKILL);
  EXPECT_EQ(children.all()[1].exit->code, 75);
}

TEST_F(ChildrenTest, WhereAllGoByThemselvesNobodyIsKilled) {
  Children children;
  NamedPipe pipe(folder_ + "/pipe");
  Start(children, "polite", "trap 'exit 75' INT; " + pipe.Hold() + "while :; do sleep 0.1; done");
  ASSERT_NE(pipe.ReadLine(), "");
  EXPECT_FALSE(children.End(absl::Seconds(10), Signals()));
  EXPECT_EQ(children.all()[0].exit->code, 75);
}

TEST_F(ChildrenTest, TheGoingObjectTakesAllWithIt) {
  NamedPipe pipe(folder_ + "/pipe");
  pid_t pid = 0;
  {
    Children children;
    Start(children, "stubborn", "trap '' INT; " + pipe.Hold() + "sleep 1000");
    ASSERT_NE(pipe.ReadLine(), "");
    pid = children.all()[0].process.pid();
    ASSERT_TRUE(Runs(pid));
  }
  EXPECT_FALSE(Runs(pid));
  EXPECT_TRUE(pipe.AwaitClosed()) << "what it had started holds the pipe too";
}

TEST_F(ChildrenTest, ASignalForTheParentIsAnEventAndNotForTheChildren) {
  Children children;
  NamedPipe pipe(folder_ + "/pipe");
  Start(children, "one", pipe.Hold() + "exec sleep 1000");
  ASSERT_NE(pipe.ReadLine(), "");
  kill(getpid(), SIGINT);
  EXPECT_EQ(Signals().Wait(absl::Seconds(10)), SIGINT);
  children.Reap();
  EXPECT_FALSE(children.AllEnded());
}

TEST_F(ChildrenTest, NothingIsLeftWhenTheParentIsKilled) {
  NamedPipe pipe(folder_ + "/pipe");
  const pid_t parent = fork();
  if (parent == 0) {
    Children children;
    for (const char* name : {"one", "two"}) {
      Start(children, name, "trap '' TERM INT HUP; " + pipe.Hold() + "exec sleep 1000");
    }
    while (true) pause();
  }
  const pid_t one = std::atoi(pipe.ReadLine().c_str());
  const pid_t two = std::atoi(pipe.ReadLine().c_str());
  ASSERT_GT(one, 1);
  ASSERT_GT(two, 1);
  ASSERT_TRUE(Runs(one) && Runs(two));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  const bool gone = pipe.AwaitClosed();
  EXPECT_TRUE(gone);
  if (gone) return;
  for (const pid_t pid : {one, two}) kill(pid, SIGKILL);
}

TEST(LogTail, IsTheLastLineThatSaysSomething) {
  EXPECT_EQ(LastLine("a\nb\n\n  \n"), "b");
  EXPECT_EQ(LastLine("only"), "only");
  EXPECT_EQ(LastLine("\n"), "");
  EXPECT_EQ(LastLineOfFile("/nowhere/at/all"), "");
}

}  // namespace
}  // namespace parley
