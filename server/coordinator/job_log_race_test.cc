// Two coordinators of one job: one has the rule, the other learns that it has not.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "server/coordinator/job_log_fixture.h"

namespace parley {
namespace {

// Lets two threads go on in turns, each up to its next operation that the other one can see or that
// shows the other one's. Run after run it goes through all orders.
class Turns {
 public:
  // Another order than all before; false when there is none.
  bool NextOrder() {
    if (!started_) return started_ = true;
    while (!trace_.empty() && trace_.back() == 1) trace_.pop_back();
    if (trace_.empty()) return false;
    trace_.back() = 1;
    return true;
  }

  void Run(MemoryFileSystem& files, const std::array<std::function<void()>, 2>& bodies) {
    where_ = {kRunning, kRunning};
    // What touches only a temporary file, or nothing that changes, is done with the turn before.
    files.BeforeEach([this](const std::string& operation) {
      if (me < 0 || operation == "Create" || operation == "CreateDirectories" ||
          operation == "SyncDirectory") {
        return;
      }
      AwaitTurn();
    });
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([this, i, &bodies] {
        me = i;
        bodies[i]();
        absl::MutexLock lock(&mu_);
        where_[i] = kDone;
      });
    }
    GiveTurns();
    for (auto& thread : threads) thread.join();
    files.BeforeEach(nullptr);
  }

 private:
  enum Where { kRunning, kWaiting, kDone };

  void AwaitTurn() {
    absl::MutexLock lock(&mu_);
    Where& mine = where_[me];
    mine = kWaiting;
    mu_.Await(absl::Condition(
        +[](Where* where) { return *where == kRunning; }, &mine));
  }

  void GiveTurns() {
    absl::MutexLock lock(&mu_);
    for (size_t choices = 0;;) {
      mu_.Await(absl::Condition(this, &Turns::NobodyRuns));
      if (where_[0] == kDone && where_[1] == kDone) return;
      int next = where_[0] == kWaiting ? 0 : 1;
      if (where_[0] == kWaiting && where_[1] == kWaiting) {
        if (choices == trace_.size()) trace_.push_back(0);
        next = trace_[choices++];
      }
      where_[next] = kRunning;
    }
  }

  bool NobodyRuns() const { return where_[0] != kRunning && where_[1] != kRunning; }

  static thread_local int me;
  absl::Mutex mu_;
  std::array<Where, 2> where_;
  std::vector<int> trace_;
  bool started_ = false;
};

thread_local int Turns::me = -1;

class JobLogRaceTest : public JobLogTest {};

TEST_F(JobLogRaceTest, OfTwoThatTakeTheSameNumberExactlyOneGetsItInEveryOrder) {
  Turns turns;
  int orders = 0;
  std::array<int, 2> wins{};
  for (; turns.NextOrder(); ++orders) {
    MemoryFileSystem files;
    MakeJobDirectory(files);
    const uint64_t before = orders % 12;  // records of an earlier coordinator
    if (before != 0) {
      auto earlier = Open(files);
      ASSERT_TRUE(earlier->Take("127.0.0.1:9", StateAt(1), kLogTime).ok());
      for (uint64_t i = 1; i < before; ++i) {
        ASSERT_TRUE(earlier->Append(StateAt(1 + i), kLogTime).ok());
      }
    }
    std::array<absl::StatusOr<JobLog>, 2> logs{Open(files), Open(files)};
    std::array<absl::Status, 2> took;
    const auto take = [&](int i) {
      took[i] = logs[i]->Take(absl::StrCat("127.0.0.1:", i), StateAt(100 + i), kLogTime).status();
    };
    turns.Run(files, {[&] { take(0); }, [&] { take(1); }});
    const int winner = took[0].ok() ? 0 : 1;
    ++wins[winner];
    ASSERT_TRUE(took[winner].ok()) << took[winner];
    ASSERT_EQ(took[1 - winner].code(), absl::StatusCode::kAborted) << took[1 - winner];
    ASSERT_NE(took[1 - winner].message().find(absl::StrCat("127.0.0.1:", winner)),
              absl::string_view::npos)
        << took[1 - winner];
    ASSERT_EQ(StepOf(*Open(files)), 100u + winner);
  }
  EXPECT_GT(orders, 200);
  EXPECT_GT(wins[0], 0);
  EXPECT_GT(wins[1], 0);
  RecordProperty("orders", orders);
}

TEST_F(JobLogRaceTest, ATakeOverFromALivingCoordinatorSharesNoNumberInAnyOrder) {
  Turns turns;
  int orders = 0;
  for (; turns.NextOrder(); ++orders) {
    MemoryFileSystem files;
    MakeJobDirectory(files);
    Ledger ledger;  // the turns see to it that one thread at a time is here
    auto old_one = Open(files);
    ASSERT_TRUE(old_one->Take("127.0.0.1:1", StateAt(1), kLogTime).ok());
    ASSERT_TRUE(old_one->CheckStillRules().ok());
    auto new_one = Open(files);
    const auto append = [&](JobLog& log, uint64_t step) {
      const absl::Status status = log.generation() == 0
                                      ? log.Take("127.0.0.1:2", StateAt(step), kLogTime).status()
                                      : log.Append(StateAt(step), kLogTime);
      EXPECT_TRUE(status.ok() || absl::IsAborted(status)) << status;
      if (status.ok()) ledger.Add(log);
      return status.ok();
    };
    turns.Run(files, {[&] { append(*old_one, 2) && append(*old_one, 3); },
                      [&] { append(*new_one, 102) && append(*new_one, 103); }});
    const bool old_rules = append(*old_one, 4);
    const bool new_rules = append(*new_one, 104);
    ASSERT_NE(old_rules, new_rules);
    ASSERT_EQ(StepOf(*Open(files)), old_rules ? 4u : 104u);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(orders, 200);
  RecordProperty("orders", orders);
}

// The slow one stands still before one of its operations while the other one takes over and goes so
// far that the slow one's number is free again.
TEST_F(JobLogRaceTest, ACoordinatorThatIsStoppedAtAnyOperationNeverAppendsToAnothersLog) {
  for (const uint64_t others : {1, 5, 8, 9, 30}) {
    for (int stop = 1;; ++stop) {
      SCOPED_TRACE(absl::StrCat(others, " records of the other one at operation ", stop));
      MemoryFileSystem files;
      MakeJobDirectory(files);
      auto slow = Open(files);
      Ledger ledger;
      ASSERT_TRUE(slow->Take("127.0.0.1:1", StateAt(1), kLogTime).ok());
      ledger.Add(*slow);
      absl::StatusOr<JobLog> other = absl::UnknownError("");
      int operations = 0;
      files.BeforeEach([&](const std::string&) {
        if (++operations != stop) return;
        files.BeforeEach(nullptr);
        other = Open(files);
        ASSERT_TRUE(other->Take("127.0.0.1:2", StateAt(101), kLogTime).ok());
        ledger.Add(*other);
        for (uint64_t i = 1; i < others; ++i) {
          ASSERT_TRUE(other->Append(StateAt(101 + i), kLogTime).ok());
          ledger.Add(*other);
        }
      });
      const absl::Status status = slow->Append(StateAt(2), kLogTime);
      files.BeforeEach(nullptr);
      if (!other.ok()) break;  // it has fewer operations
      if (status.ok()) ledger.Add(*slow);
      EXPECT_TRUE(status.ok() || absl::IsAborted(status)) << status;
      EXPECT_TRUE(absl::IsAborted(slow->CheckStillRules()));
      EXPECT_TRUE(absl::IsAborted(slow->Append(StateAt(3), kLogTime)));
      EXPECT_EQ(StepOf(*Open(files)), 100 + others);
      EXPECT_TRUE(other->Append(StateAt(200), kLogTime).ok());
      ASSERT_FALSE(HasFailure());
    }
  }
}

class RealFilesTest : public testing::Test {
 protected:
  static constexpr int kRounds = 200;

  void SetUp() override {
    char name[] = "/tmp/parley-log-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    job_ = name;
    folder_ = job_ + "/log";
  }
  void TearDown() override { std::filesystem::remove_all(job_); }

  std::string job_;
  std::string folder_;
};

TEST_F(RealFilesTest, TwoThreadsRace) {
  for (int round = 0; round < kRounds; ++round) {
    std::latch start(2);
    std::array<absl::Status, 2> took;
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        const auto files = PosixFileSystem();
        auto log = JobLog::Open(*files, folder_, "digits");
        start.arrive_and_wait();
        took[i] =
            !log.ok() ? log.status() : log->Take("127.0.0.1:1", StateAt(round), kLogTime).status();
      });
    }
    for (auto& thread : threads) thread.join();
    const int winner = took[0].ok() ? 0 : 1;
    ASSERT_TRUE(took[winner].ok()) << took[winner];
    ASSERT_TRUE(absl::IsAborted(took[1 - winner])) << took[1 - winner];
  }
  const auto files = PosixFileSystem();
  EXPECT_EQ(JobLog::Open(*files, folder_, "digits")->last()->generation(), kRounds);
  EXPECT_EQ(files->List(folder_)->size(), JobLog::kKept) << "nothing else is left";
}

// In a process of its own: says that it has opened the log, waits, takes the rule, exits with 0 if
// it has it and 1 if another one has.
[[noreturn]] void RaceInChild(const std::string& folder, int opened, int go) {
  const auto files = PosixFileSystem();
  auto log = JobLog::Open(*files, folder, "digits");
  char byte = 0;
  if (!log.ok() || write(opened, &byte, 1) != 1 || read(go, &byte, 1) != 1) _exit(2);
  const auto took = log->Take("127.0.0.1:1", StateAt(1), kLogTime);
  _exit(took.ok() ? 0 : absl::IsAborted(took.status()) ? 1 : 3);
}

TEST_F(RealFilesTest, TwoProcessesRace) {
  for (int round = 0; round < kRounds; ++round) {
    int opened[2];
    int go[2];
    ASSERT_EQ(pipe(opened), 0);
    ASSERT_EQ(pipe(go), 0);
    std::array<pid_t, 2> children{};
    for (pid_t& child : children) {
      child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) RaceInChild(folder_, opened[1], go[0]);
    }
    char bytes[2] = {};
    ASSERT_EQ(read(opened[0], bytes, 1), 1);
    ASSERT_EQ(read(opened[0], bytes, 1), 1);
    ASSERT_EQ(write(go[1], bytes, 2), 2);
    int exits = 0;
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status));
      ASSERT_LE(WEXITSTATUS(status), 1);
      exits += WEXITSTATUS(status);
    }
    ASSERT_EQ(exits, 1) << "exactly one has it";
    for (const int fd : {opened[0], opened[1], go[0], go[1]}) close(fd);
  }
  const auto files = PosixFileSystem();
  EXPECT_EQ(JobLog::Open(*files, folder_, "digits")->last()->generation(), kRounds);
}

}  // namespace
}  // namespace parley
