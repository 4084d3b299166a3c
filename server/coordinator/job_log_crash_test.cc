// Whatever operation a crash or a fault of the disk comes at, the log has the old state or the new.
#include <gtest/gtest.h>

#include <random>

#include "server/coordinator/job_log_fixture.h"

namespace parley {
namespace {

constexpr uint64_t kStates = 12;  // so many that old records are removed
constexpr uint64_t kSeeds = 16;   // ways to lose what was not synced

class JobLogCrashTest : public JobLogTest {
 protected:
  struct Course {
    uint64_t told = 0;   // the last state that was acknowledged
    uint64_t tried = 0;  // the last one that was begun
    uint64_t generation = 0;
  };

  // A coordinator goes from state `from` on until something goes wrong.
  static Course Run(MemoryFileSystem& files, uint64_t from, uint64_t count) {
    Course course{from, from, 0};
    auto log = Open(files);
    if (!log.ok()) return course;
    for (uint64_t i = 0; i < count; ++i) {
      ++course.tried;
      const absl::Status status =
          i == 0 ? log->Take("127.0.0.1:1", StateAt(course.tried), kLogTime).status()
                 : log->Append(StateAt(course.tried), kLogTime);
      if (!status.ok()) break;
      course.told = course.tried;
      course.generation = log->generation();
    }
    return course;
  }

  static uint64_t OperationsOf(uint64_t states) {
    MemoryFileSystem files;
    MakeJobDirectory(files);
    EXPECT_EQ(Run(files, 0, states).told, states);
    return files.operations();
  }
};

TEST_F(JobLogCrashTest, ACrashAtAnyOperationLeavesTheOldStateOrTheNew) {
  const uint64_t operations = OperationsOf(kStates);
  for (uint64_t at = 3; at <= operations + 1; ++at) {  // 1 and 2 make the job's directory
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(absl::StrCat("operation ", at, ", seed ", seed));
      MemoryFileSystem files;
      MakeJobDirectory(files);
      files.SetFault(at, MemoryFileSystem::Fault::kCrash);
      const Course course = Run(files, 0, kStates);
      files.Restart(seed);
      auto log = Open(files);
      ASSERT_TRUE(log.ok()) << log.status();
      ASSERT_GE(StepOf(*log), course.told);
      ASSERT_LE(StepOf(*log), course.tried);
      // It goes on.
      const uint64_t next = course.tried + 1;
      const auto generation = log->Take("127.0.0.1:2", StateAt(next), kLogTime);
      ASSERT_TRUE(generation.ok()) << generation.status();
      ASSERT_GT(*generation, course.generation);
      ASSERT_EQ(StepOf(*Open(files)), next);
    }
  }
}

TEST_F(JobLogCrashTest, AFaultAtAnyOperationIsNotTakenForAnotherCoordinator) {
  using Fault = MemoryFileSystem::Fault;
  const uint64_t operations = OperationsOf(kStates);
  for (const Fault fault : {Fault::kFails, Fault::kLostReply, Fault::kRepeated}) {
    for (uint64_t at = 3; at <= operations; ++at) {
      SCOPED_TRACE(absl::StrCat("operation ", at, ", fault ", static_cast<int>(fault)));
      MemoryFileSystem files;
      MakeJobDirectory(files);
      files.SetFault(at, fault);
      auto log = Open(files);
      if (!log.ok()) log = Open(files);
      ASSERT_TRUE(log.ok()) << log.status();
      int errors = 0;
      while (!log->Take("127.0.0.1:1", StateAt(1), kLogTime).ok()) ASSERT_EQ(++errors, 1);
      for (uint64_t step = 2; step <= kStates; ++step) {
        const absl::Status status = log->Append(StateAt(step), kLogTime);
        if (!status.ok()) {
          ASSERT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
          ASSERT_EQ(++errors, 1);
        }
        ASSERT_TRUE(log->CheckStillRules().ok() || at == files.operations());
      }
      ASSERT_TRUE(log->Append(StateAt(kStates + 1), kLogTime).ok());
      ASSERT_EQ(StepOf(*Open(files)), kStates + 1);
      ASSERT_EQ(log->generation(), 1u);
    }
  }
}

// The reply of the link was lost, and the client, asking again, is told that the name exists.
TEST_F(JobLogCrashTest, ALinkWhoseReplyWasLostIsKnownForOnesOwn) {
  JobLog log = Ruling("127.0.0.1:1");
  for (const auto fault :
       {MemoryFileSystem::Fault::kLostReply, MemoryFileSystem::Fault::kRepeated}) {
    bool armed = false;
    files_.BeforeEach([&](const std::string& operation) {
      if (operation != "Link" || armed) return;
      armed = true;
      files_.SetFault(files_.operations() + 1, fault);
    });
    const uint64_t next = StepOf(log) + 1;
    const absl::Status status = log.Append(StateAt(next), kLogTime);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(armed);
    EXPECT_EQ(StepOf(Opened()), next);
  }
}

TEST_F(JobLogCrashTest, ManyCrashesAndFaultsInARowLoseNothingThatWasAcknowledged) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    MemoryFileSystem files;
    MakeJobDirectory(files);
    uint64_t told = 0;
    uint64_t tried = 0;
    uint64_t generation = 0;
    for (int life = 0; life < 12; ++life) {
      for (int i = 0; i < 3; ++i) {
        files.SetFault(files.operations() + 1 + random() % 60,
                       static_cast<MemoryFileSystem::Fault>(random() % 3));
      }
      files.SetFault(files.operations() + 1 + random() % 90, MemoryFileSystem::Fault::kCrash);
      if (auto log = Open(files); log.ok()) {
        for (int i = 0; i < 8; ++i) {
          ++tried;
          const absl::Status status =
              log->generation() == 0 ? log->Take("127.0.0.1:1", StateAt(tried), kLogTime).status()
                                     : log->Append(StateAt(tried), kLogTime);
          ASSERT_NE(status.code(), absl::StatusCode::kAborted) << status;
          if (!status.ok()) continue;
          told = tried;
          ASSERT_GE(log->generation(), generation);
          generation = log->generation();
        }
      }
      files.Restart(random());
      auto log = Open(files);
      ASSERT_TRUE(log.ok()) << log.status();
      ASSERT_GE(StepOf(*log), told);
      ASSERT_LE(StepOf(*log), tried);
      ASSERT_GE(log->last() ? log->last()->generation() : 0, generation);
      told = StepOf(*log);  // somebody has seen it now
    }
  }
}

}  // namespace
}  // namespace parley
