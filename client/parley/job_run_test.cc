// The whole of `parley run` around shell scripts instead of our programs, and a scripted status
// instead of a coordinator.
#include "client/parley/job_run.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/parley/log_tail.h"
#include "client/testing/refusing_peers.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

// Answers GetStatus by a function; nobody calls the rest.
class ScriptedCoordinator final : public RefusingCoordinator {
 public:
  explicit ScriptedCoordinator(std::function<GetStatusReply()> status)
      : status_(std::move(status)) {}
  void GetStatus(const GetStatusRequest&, absl::Time, Done<GetStatusReply> done) override {
    done(status_());
  }

 private:
  const std::function<GetStatusReply()> status_;
};

class ScriptedConnector final : public Connector {
 public:
  explicit ScriptedConnector(std::function<GetStatusReply()> status)
      : coordinator_(std::make_shared<ScriptedCoordinator>(std::move(status))) {}
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string&) override {
    return coordinator_;
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string&) override { return nullptr; }

 private:
  const std::shared_ptr<CoordinatorClient> coordinator_;
};

SignalInbox& Signals() {
  static SignalInbox inbox;
  return inbox;
}

class JobRunTest : public testing::Test {
 protected:
  JobRunTest() {
    Signals();
    char name[] = "/tmp/parley-run.XXXXXX";
    out_ = mkdtemp(name);
    job_.set_name("small");
    job_.mutable_cluster()->set_shards(2);
    job_.mutable_cluster()->set_workers(1);
    job_.set_liveness("2s");
  }
  ~JobRunTest() override { std::filesystem::remove_all(out_); }

  // A program that writes its pid into OUT/KIND.PID.pid, says "up", and goes on as `rest` says.
  std::string Program(const std::string& kind, const std::string& rest) const {
    const std::string path = absl::StrCat(out_, "/", kind, ".sh");
    std::ofstream(path) << "#!/bin/sh\ncd " << out_ << "\necho $$ up >&2\n> " << kind << ".$$.pid\n"
                        << rest << "\n";
    chmod(path.c_str(), 0755);
    return path;
  }
  JobRun::Programs Programs(const std::string& rest) const {
    return {Program("coordinator", "echo 127.0.0.1:1 > coordinator.address\n" + rest),
            Program("shard", rest), Program("worker", rest)};
  }
  std::vector<int> Pids(const std::string& kind) const {
    std::vector<int> pids;
    for (const auto& entry : std::filesystem::directory_iterator(out_)) {
      const std::string name = entry.path().filename();
      if (name.rfind(kind + ".", 0) == 0 && entry.path().extension() == ".pid") {
        pids.push_back(std::atoi(name.c_str() + kind.size() + 1));
      }
    }
    std::sort(pids.begin(), pids.end());
    return pids;
  }
  // Ordinals against the order of the starts.
  GetStatusReply Joined() const {
    GetStatusReply status;
    const std::vector<int> shards = Pids("shard");
    const std::vector<int> workers = Pids("worker");
    const bool all = shards.size() == 2 && workers.size() == 1;
    status.set_phase(all ? TRAINING : GATHERING);
    for (size_t i = 0; i < shards.size(); ++i) {
      Member* member = status.add_members()->mutable_member();
      member->set_role(SHARD);
      member->set_ordinal(shards.size() - 1 - i);
      member->set_pid(shards[i]);
    }
    for (const int pid : workers) {
      Member* member = status.add_members()->mutable_member();
      member->set_role(WORKER);
      member->set_pid(pid);
    }
    return status;
  }
  JobRun::Result Run(const JobRun::Programs& programs, std::function<GetStatusReply()> status) {
    ScriptedConnector connector(std::move(status));
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> sink(std::fopen("/dev/null", "w"),
                                                               &std::fclose);
    ProgressDisplay display(sink.get(), /*terminal=*/false);
    const auto files = PosixFileSystem();
    JobRun run(job_, programs, {.out = out_}, *files, connector, Signals(), display);
    return run.Run();
  }
  void ExpectAllGone() const {
    for (const char* kind : {"coordinator", "shard", "worker"}) {
      for (const int pid : Pids(kind)) EXPECT_NE(kill(pid, 0), 0) << kind << " " << pid;
    }
  }

  std::string out_;
  JobConfig job_;
};

TEST_F(JobRunTest, LogsHaveTheOrdinalsThatTheCoordinatorGave) {
  bool told = false;
  const auto result = Run(Programs("while [ ! -e end ]; do sleep 0.02; done"), [&] {
    if (told) std::ofstream(out_ + "/end");
    GetStatusReply status = Joined();
    told = status.phase() == TRAINING;
    return status;
  });
  EXPECT_EQ(result.outcome.code, kFinished) << result.outcome.last_line;
  const std::vector<int> shards = Pids("shard");
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_EQ(LastLineOfFile(out_ + "/shard-0.log"), absl::StrCat(shards[1], " up"));
  EXPECT_EQ(LastLineOfFile(out_ + "/shard-1.log"), absl::StrCat(shards[0], " up"));
  EXPECT_EQ(LastLineOfFile(out_ + "/worker-0.log"), absl::StrCat(Pids("worker")[0], " up"));
}

TEST_F(JobRunTest, WorkersComeAndGoAsTheJobWants) {
  enum { kOne, kTwo, kOneGoes, kOver } now = kOne;
  int second = 0;
  bool has_trained = false;  // a status has said so
  const auto result =
      Run(Programs("while [ ! -e end ] && [ ! -e end.$$ ]; do sleep 0.02; done"), [&] {
        GetStatusReply status = Joined();
        const std::vector<int> workers = Pids("worker");
        if (status.members_size() < 3) return status;
        status.set_phase(TRAINING);
        if (now == kOne && has_trained) now = kTwo;
        if (now == kTwo && workers.size() == 2) {
          second = workers[1];
          if (LastLineOfFile(out_ + "/worker-1.log") != absl::StrCat(second, " up")) {
            second = workers[0];  // pids went round
          }
          now = kOneGoes;
          std::ofstream(absl::StrCat(out_, "/end.", second));
        } else if (now == kOneGoes && kill(second, 0) != 0) {
          now = kOver;
          std::ofstream(out_ + "/end");
        }
        has_trained = true;
        status.set_wanted_workers(now == kTwo ? 2 : 1);
        for (MemberStatus& member : *status.mutable_members()) {
          if (now == kOneGoes && member.member().pid() == second) member.set_drained(true);
        }
        if (now == kOver) status.set_phase(FINISHED);
        return status;
      });
  EXPECT_EQ(result.outcome.code, kFinished) << result.outcome.last_line;
  EXPECT_EQ(now, kOver) << "the job was ended";
  EXPECT_EQ(Pids("worker").size(), 2u);
  EXPECT_EQ(LastLineOfFile(out_ + "/worker-1.log"), absl::StrCat(second, " up"));
  ExpectAllGone();
}

TEST_F(JobRunTest, AnInterruptEndsEvenThoseThatIgnoreTerm) {
  bool sent = false;
  absl::Time began;
  const auto result = Run(Programs("trap '' TERM INT; while :; do sleep 0.1; done"), [&] {
    GetStatusReply status = Joined();
    if (status.phase() == TRAINING && !sent) {
      sent = true;
      began = SteadyNow();
      kill(getpid(), SIGINT);
    }
    return status;
  });
  EXPECT_LT(SteadyNow() - began, absl::Seconds(5));
  EXPECT_EQ(result.outcome.code, kFailed);
  EXPECT_EQ(result.outcome.last_line, "interrupted by SIGINT");
  ExpectAllGone();
}

TEST_F(JobRunTest, AfterSigtermTheCoordinatorIsToldAndTheJobEndsByItself) {
  job_.set_preemption_grace("20s");
  JobRun::Programs programs = Programs(
      "trap '' TERM; while [ ! -e end ]; do sleep 0.02; done; echo it is saved >&2; exit 75");
  programs.coordinator = Program("coordinator",
                                 "trap '> end; echo it is saved >&2; exit 75' TERM\n"
                                 "echo 127.0.0.1:1 > coordinator.address\n"
                                 "while :; do sleep 0.02; done");
  int trained = 0;
  const auto result = Run(programs, [&] {
    GetStatusReply status = Joined();
    // At the first answer nobody has seen yet that it trains.
    if (status.phase() == TRAINING && ++trained == 2) kill(getpid(), SIGTERM);
    return status;
  });
  EXPECT_EQ(result.outcome.code, kPreempted);
  EXPECT_EQ(result.outcome.last_line, "it is saved");
  ExpectAllGone();
}

TEST_F(JobRunTest, WhoFailsBeforeTheJobIsUpGivesStatusAndLastLine) {
  JobRun::Programs programs = Programs("sleep 1000");
  programs.shard = Program("shard", "echo cannot listen on 127.0.0.1:80 >&2; exit 2");
  const auto result = Run(programs, [] {
    GetStatusReply status;
    status.set_phase(GATHERING);
    return status;
  });
  EXPECT_EQ(result.outcome.code, kWrongUsage);
  EXPECT_EQ(result.outcome.last_line, "cannot listen on 127.0.0.1:80");
  ExpectAllGone();
}

TEST_F(JobRunTest, AWorkerThatIsKilledBeforeTheJobIsUpIsStartedAgainAndItsLogStays) {
  job_.set_max_restarts(1);
  job_.mutable_cluster()->set_workers(2);
  JobRun::Programs programs = Programs("while [ ! -e end ]; do sleep 0.02; done");
  // The first worker that gets there.
  programs.worker = Program("worker",
                            "mkdir first 2> /dev/null && kill -9 $$\n"
                            "while [ ! -e end ]; do sleep 0.02; done");
  bool told = false;
  const auto result = Run(programs, [&] {
    if (told) std::ofstream(out_ + "/end");
    GetStatusReply status;
    std::vector<int> workers = Pids("worker");
    workers.erase(
        std::remove_if(workers.begin(), workers.end(), [](int pid) { return kill(pid, 0) != 0; }),
        workers.end());
    const std::vector<int> shards = Pids("shard");
    told = Pids("worker").size() == 3 && workers.size() == 2 && shards.size() == 2;
    status.set_phase(told ? TRAINING : GATHERING);
    if (!told) return status;
    for (const auto& [role, pids] : {std::pair(SHARD, shards), std::pair(WORKER, workers)}) {
      for (size_t i = 0; i < pids.size(); ++i) {
        Member* member = status.add_members()->mutable_member();
        member->set_role(role);
        member->set_ordinal(i);
        member->set_pid(pids[i]);
      }
    }
    return status;
  });
  EXPECT_EQ(result.outcome.code, kFinished) << result.outcome.last_line;
  EXPECT_EQ(Pids("worker").size(), 3u);
  std::set<std::string> said;  // each in a log of its own
  for (const auto& entry : std::filesystem::directory_iterator(out_)) {
    const std::string name = entry.path().filename();
    if (name.rfind("worker-", 0) == 0 && entry.path().extension() == ".log") {
      said.insert(LastLineOfFile(entry.path().string()));
    }
  }
  std::set<std::string> all;
  for (const int pid : Pids("worker")) all.insert(absl::StrCat(pid, " up"));
  EXPECT_EQ(said, all);
  ExpectAllGone();
}

TEST_F(JobRunTest, ACoordinatorThatFailsAtOnceLetsNothingElseStart) {
  JobRun::Programs programs = Programs("sleep 1000");
  programs.coordinator = Program("coordinator", "echo the port is in use >&2; exit 2");
  const auto result = Run(programs, [] { return GetStatusReply(); });
  EXPECT_EQ(result.outcome.code, kWrongUsage);
  EXPECT_EQ(result.outcome.last_line, "the port is in use");
  EXPECT_TRUE(Pids("shard").empty() && Pids("worker").empty());
}

}  // namespace
}  // namespace parley
