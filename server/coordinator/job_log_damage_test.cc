// What is not exactly what was written is never taken for a state.
#include <gtest/gtest.h>

#include <string>

#include "server/coordinator/job_log_fixture.h"
#include "server/coordinator/job_log_record.h"

namespace parley {
namespace {

class JobLogDamageTest : public JobLogTest {
 protected:
  JobLogDamageTest() {
    Ruling("127.0.0.1:1", 3);
    newest_ = *ReadWholeFile(files_, RecordPath(3));
  }

  // The newest record is `content`: that is found, and the file is named.
  void ExpectFound(const std::string& content) {
    WriteAs(RecordPath(3), content);
    const auto log = Open(files_);
    ASSERT_EQ(log.status().code(), absl::StatusCode::kDataLoss) << log.status();
    ASSERT_NE(log.status().message().find(RecordPath(3)), absl::string_view::npos) << log.status();
  }

  std::string newest_;
};

TEST_F(JobLogDamageTest, EveryDamagedByteIsFound) {
  for (size_t byte = 0; byte < newest_.size(); ++byte) {
    for (const int flip : {0x01, 0x02, 0x10, 0x20, 0x80, 0xff}) {
      SCOPED_TRACE(absl::StrCat("byte ", byte, " ^ ", flip));
      std::string damaged = newest_;
      damaged[byte] = static_cast<char>(damaged[byte] ^ flip);
      ExpectFound(damaged);
    }
  }
  WriteAs(RecordPath(3), newest_);
  EXPECT_EQ(StepOf(Opened()), 3u);
}

TEST_F(JobLogDamageTest, ARecordThatLacksItsEndIsFoundHoweverMuchIsLeft) {
  for (size_t size = 0; size < newest_.size(); ++size) ExpectFound(newest_.substr(0, size));
}

TEST_F(JobLogDamageTest, BytesThatDoNotBelongToItAreFound) {
  ExpectFound(newest_ + "x");
  ExpectFound(newest_ + newest_);
  ExpectFound(std::string(newest_.size(), '\0'));
  ExpectFound(EncodeRecord({}));
}

TEST_F(JobLogDamageTest, ARecordUnderAnothersNumberIsFound) {
  ExpectFound(*ReadWholeFile(files_, RecordPath(2)));
}

TEST_F(JobLogDamageTest, TheMessageTellsWhatWasFoundAndWhatToDo) {
  std::string damaged = newest_;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  WriteAs(RecordPath(3), damaged);
  const std::string message(Open(files_).status().message());
  for (const char* needle : {"CRC-32", "move it away", "00000000000000000002.record"}) {
    EXPECT_NE(message.find(needle), std::string::npos) << message;
  }
  ASSERT_TRUE(files_.Remove(RecordPath(3)).ok());
  EXPECT_EQ(StepOf(Opened()), 2u);
}

// A disk that tells a lie about syncing leaves such a file. Its temporary name is still there, so
// nobody was told that it had been made.
TEST_F(JobLogDamageTest, ATornRecordWhoseMakerNeverFinishedItIsPassedOver) {
  const std::string temporary =
      absl::StrCat(kLogFolder, "/.00000000000000000004.record.abc.temporary");
  for (size_t size = 0; size < newest_.size(); ++size) {
    WriteAs(temporary, newest_.substr(0, size));
    files_.Remove(RecordPath(4)).IgnoreError();
    ASSERT_TRUE(files_.Link(temporary, RecordPath(4)).ok());
    JobLog log = Opened();
    EXPECT_EQ(StepOf(log), 3u);
    EXPECT_EQ(log.next_number(), 5u);
  }
  JobLog log = Opened();
  EXPECT_EQ(*log.Take("127.0.0.1:2", StateAt(5), kLogTime), 2u);
  EXPECT_EQ(StepOf(Opened()), 5u);
}

TEST_F(JobLogDamageTest, AnotherFilesTemporaryNameProvesNothing) {
  WriteAs(absl::StrCat(kLogFolder, "/.00000000000000000003.record.abc.temporary"), newest_);
  ExpectFound(newest_.substr(0, 40));
}

TEST_F(JobLogDamageTest, DamageToAnUnfinishedRecordThatIsNotTornIsFound) {
  const std::string temporary =
      absl::StrCat(kLogFolder, "/.00000000000000000003.record.abc.temporary");
  std::string damaged = newest_;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  WriteAs(temporary, damaged);
  ASSERT_TRUE(files_.Remove(RecordPath(3)).ok());
  ASSERT_TRUE(files_.Link(temporary, RecordPath(3)).ok());
  EXPECT_EQ(Open(files_).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(JobLogDamageTest, AnOlderRecordsDamageDoesNoHarm) {
  WriteAs(RecordPath(2), "");
  EXPECT_EQ(StepOf(Opened()), 3u);
}

TEST_F(JobLogDamageTest, OtherFilesInTheFolderAreNoRecords) {
  for (const char* name :
       {"4.record", "00000000000000000004.record.bak", "0000000000000000000x.record",
        "00000000000000000000.record", "99999999999999999999.record", "18446744073709551615.record",
        "+0000000000000000004.record"}) {
    WriteAs(absl::StrCat(kLogFolder, "/", name), "x");
  }
  EXPECT_EQ(StepOf(Opened()), 3u);
  EXPECT_EQ(Opened().next_number(), 4u);
}

TEST_F(JobLogDamageTest, ANewerParleysRecordIsLeftToIt) {
  auto record = DecodeRecord(newest_);
  ASSERT_TRUE(record.ok()) << record.status();
  record->set_format(kRecordFormat + 1);
  WriteAs(RecordPath(3), EncodeRecord(*record));
  const auto log = Open(files_);
  EXPECT_EQ(log.status().code(), absl::StatusCode::kFailedPrecondition) << log.status();
  EXPECT_NE(log.status().message().find("newer"), absl::string_view::npos) << log.status();
}

}  // namespace
}  // namespace parley
