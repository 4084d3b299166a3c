#include "server/coordinator/job_log.h"

#include <gtest/gtest.h>

#include <string>

#include "server/coordinator/job_log_fixture.h"
#include "server/coordinator/job_log_record.h"

namespace parley {
namespace {

TEST_F(JobLogTest, AJobThatHasNeverRunHasNoStateAndItsFirstRecordIsNumberOne) {
  JobLog log = Opened();
  EXPECT_FALSE(log.last());
  EXPECT_EQ(log.next_number(), 1u);
  EXPECT_FALSE(files_.Exists(kLogFolder)) << "to open it writes nothing";
  EXPECT_EQ(*log.Take("127.0.0.1:1", StateAt(1), kLogTime), 1u);
  EXPECT_EQ(Names(), "00000000000000000001.record ");
}

TEST_F(JobLogTest, TheNextCoordinatorFindsTheLastStateAndIsOneGenerationHigher) {
  Ruling("127.0.0.1:1", 3);
  JobLog log = Opened();
  EXPECT_EQ(StepOf(log), 3u);
  EXPECT_EQ(log.last()->generation(), 1u);
  EXPECT_EQ(log.last()->address(), "127.0.0.1:1");
  EXPECT_EQ(log.next_number(), 4u);
  EXPECT_EQ(*log.Take("127.0.0.1:2", StateAt(4), kLogTime), 2u);
  EXPECT_EQ(StepOf(Opened()), 4u);
  EXPECT_EQ(Opened().last()->generation(), 2u);
}

TEST_F(JobLogTest, TheLastEightRecordsAreKeptAndNoTemporaryFile) {
  Ruling("127.0.0.1:1", 20);
  std::string expected;
  for (int number = 13; number <= 20; ++number) {
    absl::StrAppend(&expected, "000000000000000000", number, ".record ");
  }
  EXPECT_EQ(Names(), expected);
}

TEST_F(JobLogTest, WhoFindsTheNumberTakenIsToldByWhomAndIsLostForGood) {
  JobLog first = Ruling("127.0.0.1:1");
  JobLog second = Opened();
  ASSERT_TRUE(second.Take("127.0.0.1:2", StateAt(2), kLogTime).ok());
  const absl::Status lost = first.Append(StateAt(3), kLogTime);
  EXPECT_EQ(lost.code(), absl::StatusCode::kAborted);
  for (const char* needle : {"number 2", "generation 2 at 127.0.0.1:2", "generation 1 at"}) {
    EXPECT_NE(lost.message().find(needle), absl::string_view::npos) << lost;
  }
  const std::string names = Names();
  const uint64_t operations = files_.operations();
  EXPECT_EQ(first.Append(StateAt(4), kLogTime), lost);
  EXPECT_EQ(first.Take("127.0.0.1:1", StateAt(4), kLogTime).status(), lost);
  EXPECT_EQ(first.CheckStillRules(), lost);
  EXPECT_EQ(files_.operations(), operations) << "it touches the disk no more";
  EXPECT_EQ(Names(), names);
  EXPECT_TRUE(second.Append(StateAt(5), kLogTime).ok());
}

TEST_F(JobLogTest, WhoHasNothingToAppendCanFindOutThatItHasLost) {
  JobLog first = Ruling("127.0.0.1:1", 12);
  EXPECT_TRUE(first.CheckStillRules().ok());
  JobLog second = Opened();
  ASSERT_TRUE(second.Take("127.0.0.1:2", StateAt(13), kLogTime).ok());
  EXPECT_EQ(first.CheckStillRules().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(second.CheckStillRules().ok());
}

// Its next number has been free again since the other one removed its old records.
TEST_F(JobLogTest, AStoppedCoordinatorLearnsThatItHasLostHoweverLateItWakes) {
  for (const uint64_t others : {1, 7, 8, 9, 20}) {
    MemoryFileSystem files;
    MakeJobDirectory(files);
    auto first = Open(files);
    ASSERT_TRUE(first->Take("127.0.0.1:1", StateAt(1), kLogTime).ok());
    auto second = Open(files);
    ASSERT_TRUE(second->Take("127.0.0.1:2", StateAt(2), kLogTime).ok());
    for (uint64_t i = 1; i < others; ++i) {
      ASSERT_TRUE(second->Append(StateAt(2 + i), kLogTime).ok());
    }
    EXPECT_EQ(first->Append(StateAt(1000), kLogTime).code(), absl::StatusCode::kAborted) << others;
    EXPECT_EQ(StepOf(*Open(files)), 1 + others) << "what the lost one wrote is not found";
    EXPECT_TRUE(second->Append(StateAt(2 + others), kLogTime).ok());
  }
}

TEST_F(JobLogTest, NobodyAppendsWhoHasNotTakenTheRule) {
  JobLog log = Opened();
  EXPECT_EQ(log.Append(StateAt(1), kLogTime).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(log.CheckStillRules().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(JobLogTest, TheLogOfAnotherJobIsRefused) {
  Ruling("127.0.0.1:1");
  const auto other = JobLog::Open(files_, kLogFolder, "letters");
  EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(other.status().message().find("'digits'"), absl::string_view::npos) << other.status();
}

TEST_F(JobLogTest, AStateThatIsTooLargeToBeReadIsNotWritten) {
  JobLog log = Ruling("127.0.0.1:1");
  CoordinatorState large = StateAt(2);
  large.set_job_fingerprint(std::string(kMaxRecordBytes, 'x'));
  EXPECT_EQ(log.Append(large, kLogTime).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(log.Append(StateAt(3), kLogTime).ok());
  EXPECT_EQ(StepOf(Opened()), 3u);
}

TEST_F(JobLogTest, TemporaryFilesOfACrashGoAndThoseOfALivingProcessStay) {
  Ruling("127.0.0.1:1");
  const absl::Time start = absl::FromUnixSeconds(2'000'000'000);
  const std::string folder = absl::StrCat(kLogFolder, "/");
  files_.SetNow(start);
  WriteAs(folder + ".00000000000000000002.record.abc.temporary", "left by a crash");
  WriteAs(folder + "notes.txt", "an operator's");
  files_.SetNow(start + absl::Seconds(1));
  WriteAs(folder + ".00000000000000000002.record.def.temporary", "being written");
  files_.SetNow(start + JobLog::kAbandonedAfter);
  ASSERT_TRUE(Opened().Take("127.0.0.1:2", StateAt(2), kLogTime).ok());
  EXPECT_EQ(Names(),
            ".00000000000000000002.record.def.temporary 00000000000000000001.record "
            "00000000000000000002.record notes.txt ");
}

TEST_F(JobLogTest, TwoLiveCoordinatorsNeverHaveTheSameGeneration) {
  uint64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    const auto generation = Opened().Take("127.0.0.1:1", StateAt(1), kLogTime);
    ASSERT_TRUE(generation.ok());
    EXPECT_GT(*generation, last);
    last = *generation;
  }
}

}  // namespace
}  // namespace parley
