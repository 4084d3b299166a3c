// Nobody is told what is not recorded: the coordinator, its writer and its log together, in virtual
// time, on a file system in memory.
#include "server/coordinator/log_writer.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/manual_timers.h"
#include "common/memory_file_system.h"
#include "server/coordinator/coordinator_fixture.h"

namespace parley {
namespace {

constexpr absl::Duration kLiveness = absl::Seconds(10);
using Fault = MemoryFileSystem::Fault;

// One coordinator on the job's files.
class Ruler {
 public:
  explicit Ruler(MemoryFileSystem& files, uint32_t workers = 2,
                 const std::optional<CoordinatorState>& earlier = std::nullopt)
      : coordinator(CoordinatorFixture::DefaultOptions(1, workers),
                    [this] { return timers->Now(); }),
        log(LogFormat::kText, "", [this](const std::string& line) { lines.push_back(line); }) {
    auto opened = JobLog::Open(files, "/job/log", "digits");
    EXPECT_TRUE(opened.ok()) << opened.status();
    EXPECT_TRUE(!earlier || coordinator.Restore(*earlier).ok());
    const CoordinatorState state =
        coordinator.Read([](const CoordinatorCore& core) { return core.DurableState(); });
    const auto generation = opened->Take("127.0.0.1:4000", state, timers->Now());
    EXPECT_TRUE(generation.ok()) << generation.status();
    writer = std::make_unique<LogWriter>(
        *std::move(opened), coordinator,
        LogWriter::Options{timers, kLiveness, &log, [this] { return wall_ahead; },
                           [this] { ++found_ruling; }});
    coordinator.Open(generation.value_or(1), "127.0.0.1:4000");
  }

  JoinRequest JoinOf(uint64_t incarnation) {
    JoinRequest request;
    request.mutable_header()->set_job("digits");
    request.mutable_header()->set_incarnation(incarnation);
    request.set_role(WORKER);
    return request;
  }

  // What a Join is answered, once it is.
  std::shared_ptr<std::optional<absl::StatusOr<JoinReply>>> Join(uint64_t incarnation) {
    auto answer = std::make_shared<std::optional<absl::StatusOr<JoinReply>>>();
    coordinator.Join(JoinOf(incarnation), absl::InfiniteFuture(),
                     [answer](absl::StatusOr<JoinReply> reply) { *answer = std::move(reply); });
    return answer;
  }

  CallHeader Joined(uint64_t incarnation) {
    CallHeader header = JoinOf(incarnation).header();
    const auto answer = Join(incarnation);
    timers->Advance(absl::ZeroDuration());
    EXPECT_TRUE(answer->has_value() && (*answer)->ok());
    header.set_member((*answer)->value().member());
    return header;
  }

  std::optional<absl::Status> Heartbeat(const CallHeader& header) {
    HeartbeatRequest request;
    *request.mutable_header() = header;
    std::optional<absl::Status> answer;
    coordinator.Heartbeat(request, absl::InfiniteFuture(),
                          [&](absl::StatusOr<HeartbeatReply> reply) { answer = reply.status(); });
    return answer;
  }

  std::shared_ptr<ManualTimers> timers = std::make_shared<ManualTimers>();
  LockedCoordinator coordinator;
  std::vector<std::string> lines;
  Log log;
  int found_ruling = 0;
  absl::Duration wall_ahead;
  std::unique_ptr<LogWriter> writer;
};

class LogWriterTest : public testing::Test {
 protected:
  LogWriterTest() {
    EXPECT_TRUE(files_.CreateDirectories("/job").ok());
    EXPECT_TRUE(files_.SyncDirectory("/").ok());
  }

  CoordinatorRecord Newest() {
    auto log = JobLog::Open(files_, "/job/log", "digits");
    EXPECT_TRUE(log.ok()) << log.status();
    return *log->last();
  }
  // So many operations from now on fail.
  void BreakDisk(uint64_t operations) {
    for (uint64_t i = 1; i <= operations; ++i) {
      files_.SetFault(files_.operations() + i, Fault::kFails);
    }
  }

  MemoryFileSystem files_;
};

TEST_F(LogWriterTest, AnAnswerWaitsForItsRecord) {
  Ruler ruler(files_);
  const auto answer = ruler.Join(1);
  EXPECT_FALSE(answer->has_value());
  ruler.timers->Advance(absl::ZeroDuration());
  ASSERT_TRUE(answer->has_value() && (*answer)->ok());
  EXPECT_EQ(Newest().state().members_size(), 1);
}

TEST_F(LogWriterTest, ARecordIsByTheWallClock) {
  CoordinatorState earlier;
  {
    Ruler ruler(files_);
    earlier = Newest().state();
  }
  const int64_t end = absl::ToUnixMicros(absl::UnixEpoch() + absl::Hours(500'000));
  earlier.mutable_preemption()->set_end_unix_micros(end);
  Ruler ruler(files_, 2, earlier);
  const absl::Time now = ruler.timers->Now();
  ruler.wall_ahead = absl::Hours(1);
  const auto answer = ruler.Join(1);
  ruler.timers->Advance(absl::ZeroDuration());
  EXPECT_EQ(Newest().written_unix_micros(), absl::ToUnixMicros(now + absl::Hours(1)));
  EXPECT_EQ(Newest().state().preemption().end_unix_micros(),
            end + absl::ToInt64Microseconds(absl::Hours(1)));
}

TEST_F(LogWriterTest, ManyChangesAreOneRecord) {
  Ruler ruler(files_);
  const uint64_t number = Newest().number();
  const auto one = ruler.Join(1);
  const auto two = ruler.Join(2);
  ruler.timers->Advance(absl::ZeroDuration());
  EXPECT_TRUE(one->has_value() && two->has_value());
  EXPECT_EQ(Newest().number(), number + 1);
}

TEST_F(LogWriterTest, ADiskThatDoesNotAnswerIsToldOfWhileItIsWaitedFor) {
  Ruler ruler(files_);
  ruler.writer->TellIfSlow();
  const auto answer = ruler.Join(1);
  bool waits = true;
  files_.BeforeEach([&](const std::string&) {
    if (!std::exchange(waits, false)) return;
    for (int i = 0; i < 3; ++i) {
      ruler.timers->PassInTask(kLiveness / 2);
      ruler.writer->TellIfSlow();
    }
    EXPECT_EQ(ruler.lines.size(), 1u) << "once";
  });
  ruler.timers->Advance(absl::ZeroDuration());
  files_.BeforeEach(nullptr);
  ASSERT_TRUE(answer->has_value());
  ASSERT_EQ(ruler.lines.size(), 2u);
  EXPECT_NE(ruler.lines[0].find("does not answer"), std::string::npos) << ruler.lines[0];
  EXPECT_NE(ruler.lines[1].find("has answered seconds=15"), std::string::npos) << ruler.lines[1];
  ruler.timers->Advance(kLiveness);
  ruler.writer->TellIfSlow();
  EXPECT_EQ(ruler.lines.size(), 2u);
}

TEST_F(LogWriterTest, WhatChangesNothingWaitsForNoRecord) {
  Ruler ruler(files_);
  const CallHeader header = ruler.Joined(1);
  const uint64_t number = Newest().number();
  ASSERT_EQ(ruler.Heartbeat(header), absl::OkStatus());
  const auto again = ruler.Join(1);
  EXPECT_TRUE(again->has_value());
  ruler.timers->Advance(absl::ZeroDuration());
  EXPECT_EQ(Newest().number(), number);
}

TEST_F(LogWriterTest, WhoAsksMeanwhileIsToldNothingThatIsNotRecorded) {
  Ruler ruler(files_);
  const CallHeader header = ruler.Joined(1);
  (void)ruler.Join(2);
  EXPECT_EQ(ruler.Heartbeat(header), absl::OkStatus()) << "it tells nothing";
  bool told = false;
  ruler.coordinator.GetStatus({}, absl::InfiniteFuture(),
                              [&](const absl::StatusOr<GetStatusReply>&) { told = true; });
  EXPECT_FALSE(told);
  ruler.timers->Advance(absl::ZeroDuration());
  EXPECT_TRUE(told);
}

TEST_F(LogWriterTest, WhoWatchesIsWokenWhenItIsRecorded) {
  Ruler ruler(files_);
  WatchRequest request;
  *request.mutable_header() = ruler.Joined(1);
  request.set_seen_revision(
      ruler.coordinator.Read([](const CoordinatorCore& core) { return core.revision(); }));
  std::optional<Phase> phase;
  ruler.coordinator.Watch(request, absl::InfiniteFuture(),
                          [&](absl::StatusOr<SharedJobState> reply) {
                            ASSERT_TRUE(reply.ok());
                            phase = (*reply)->phase();
                          });
  ruler.coordinator.FailItself("preempted by SIGINT");
  EXPECT_FALSE(phase.has_value());
  ruler.timers->Advance(absl::ZeroDuration());
  EXPECT_EQ(phase, FAILED);
  EXPECT_EQ(Newest().state().phase(), FAILED);
}

TEST_F(LogWriterTest, FileWorkWaitsForItsRecord) {
  // All workers have finished: the folder of the last checkpoint is to be made.
  CoordinatorFixture job(1, 2);
  job.Train();
  while (job.core.progress().position().epoch() < 2) {
    ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  }
  for (auto* worker : job.workers) {
    ASSERT_TRUE(job.Finish(*worker, job.core.progress().step()).ok());
  }
  ASSERT_TRUE(job.core.has_file_work());
  Ruler ruler(files_, 2, job.core.DurableState());
  ReportEvaluationRequest evaluation;
  *evaluation.mutable_header() = job.workers[0]->header;
  evaluation.mutable_part()->set_samples(10);
  ruler.coordinator.ReportEvaluation(evaluation, absl::InfiniteFuture(),
                                     [](const absl::StatusOr<ReportEvaluationReply>&) {});
  int folders = 0;
  const auto perform = [&](const FileWork&) {
    ++folders;
    return absl::OkStatus();
  };
  ruler.coordinator.DoFileWork(perform);
  EXPECT_EQ(folders, 0) << "it may come from a change that is not recorded";
  ruler.timers->Advance(absl::ZeroDuration());
  ruler.coordinator.DoFileWork(perform);
  EXPECT_EQ(folders, 1);
}

TEST_F(LogWriterTest, WhileTheDiskFailsCallsAreAnsweredUnavailableAndItGoesOnTrying) {
  Ruler ruler(files_);
  const CallHeader header = ruler.Joined(1);
  BreakDisk(400);
  const auto answer = ruler.Join(2);
  for (absl::Duration passed; passed <= 0.6 * kLiveness; passed += kLiveness / 20) {
    ruler.timers->Advance(kLiveness / 20);
    ASSERT_EQ(ruler.Heartbeat(header), absl::OkStatus());
    ruler.coordinator.Tick();
  }
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE((*answer)->status().message().find("the disk has failed"), absl::string_view::npos)
      << (*answer)->status();
  EXPECT_EQ(ruler.lines.size(), 1u) << "said once";
  for (int i = 0; i < 1000 && ruler.lines.size() < 2; ++i) ruler.timers->Advance(kLiveness / 20);
  EXPECT_EQ(ruler.lines.size(), 2u) << "and when it is over";
  EXPECT_EQ(Newest().state().members_size(), 2);
  const auto again = ruler.Join(2);
  EXPECT_TRUE(again->has_value() && (*again)->ok());
}

// Each of them could begin a chain of attempts of its own, which lives until the disk does.
TEST_F(LogWriterTest, WhileTheDiskFailsOneAttemptAtATimeIsMadeWhoeverCalls) {
  Ruler ruler(files_, /*workers=*/100);
  ruler.Joined(7);
  BreakDisk(100'000);
  const uint64_t before = files_.operations();
  const auto attempts = [&] {
    const uint64_t operations = files_.operations();
    ruler.timers->Advance(kLiveness / 20);
    return files_.operations() - operations;
  };
  const auto first = ruler.Join(8);
  ruler.timers->Advance(absl::ZeroDuration());
  const uint64_t one = files_.operations() - before;
  EXPECT_GT(one, 0u);
  for (uint64_t incarnation = 9; incarnation < 60; ++incarnation) {
    ruler.Join(incarnation);
    ruler.timers->Advance(absl::ZeroDuration());
  }
  for (int i = 0; i < 5; ++i) EXPECT_LE(attempts(), 3 * one) << "fifty have called";
}

TEST_F(LogWriterTest, WhoHasLostTheRuleTellsNobodyAnythingAndNamesItsSuccessor) {
  Ruler old(files_);
  const CallHeader header = old.Joined(1);
  Ruler successor(files_);
  const auto answer = old.Join(2);
  old.timers->Advance(absl::ZeroDuration());
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(old.coordinator.lost().message().find("generation 2 at 127.0.0.1:4000"),
            absl::string_view::npos)
      << old.coordinator.lost();
  EXPECT_EQ(old.Heartbeat(header)->code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(successor.coordinator.lost().ok());
}

TEST_F(LogWriterTest, AnIdleOneFindsOutToo) {
  Ruler old(files_);
  WatchRequest request;
  *request.mutable_header() = old.Joined(1);
  request.set_seen_revision(
      old.coordinator.Read([](const CoordinatorCore& core) { return core.revision(); }));
  std::optional<absl::Status> watched;
  old.coordinator.Watch(
      request, absl::InfiniteFuture(),
      [&](const absl::StatusOr<SharedJobState>& reply) { watched = reply.status(); });
  old.timers->Advance(kLiveness);
  EXPECT_EQ(old.found_ruling, 2);
  Ruler successor(files_);
  EXPECT_TRUE(old.coordinator.lost().ok());
  old.timers->Advance(kLiveness / 2);
  EXPECT_FALSE(old.coordinator.lost().ok());
  EXPECT_EQ(old.found_ruling, 2);
  ASSERT_TRUE(watched.has_value());
  EXPECT_EQ(watched->code(), absl::StatusCode::kUnavailable);
}

// Whatever the disk does, and whenever the machine stops: who was told that it has joined is in the
// record that the next coordinator finds.
TEST_F(LogWriterTest, WhatWasToldIsThereAfterACrash) {
  int told_in_all = 0;
  int held_in_all = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    MemoryFileSystem files;
    ASSERT_TRUE(files.CreateDirectories("/job").ok());
    ASSERT_TRUE(files.SyncDirectory("/").ok());
    std::vector<std::shared_ptr<std::optional<absl::StatusOr<JoinReply>>>> answers;
    {
      Ruler ruler(files, 30);
      const uint64_t crash = files.operations() + 1 + random() % 60;
      files.SetFault(crash, Fault::kCrash);
      for (int i = 0; i < 4; ++i) {
        files.SetFault(files.operations() + 1 + random() % 60,
                       random() % 2 == 0 ? Fault::kFails : Fault::kLostReply);
      }
      for (uint64_t i = 1; i <= 20; ++i) {
        answers.push_back(ruler.Join(i));
        if (random() % 2 == 0) ruler.timers->Advance(absl::Milliseconds(random() % 1000));
      }
      ruler.timers->Advance(kLiveness / 4);
    }
    files.Restart(seed);
    auto log = JobLog::Open(files, "/job/log", "digits");
    ASSERT_TRUE(log.ok()) << "seed " << seed << ": " << log.status();
    std::set<uint64_t> recorded;
    for (const LoggedMember& member : log->last()->state().members()) {
      recorded.insert(member.member().id());
    }
    for (const auto& answer : answers) {
      if (!answer->has_value() || !(*answer)->ok()) {
        ++held_in_all;
        continue;
      }
      ++told_in_all;
      EXPECT_EQ(recorded.count((*answer)->value().member()), 1u) << "seed " << seed;
    }
  }
  EXPECT_GT(told_in_all, 300);
  EXPECT_GT(held_in_all, 300);
}

}  // namespace
}  // namespace parley
