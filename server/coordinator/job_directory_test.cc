#include "server/coordinator/job_directory.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <thread>

namespace parley {
namespace {

class JobDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/parley-job-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    path_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  // A coordinator that answers at `living`, and nobody anywhere else.
  JobDirectory Directory(std::string living = "") {
    return JobDirectory(*files_, path_, [living](const std::string& address) {
      return address == living ? absl::OkStatus() : absl::UnavailableError("connection refused");
    });
  }

  size_t FileCount() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      (void)entry;
      ++count;
    }
    return count;
  }

  const std::unique_ptr<FileSystem> files_ = PosixFileSystem();
  std::string path_;
};

TEST_F(JobDirectoryTest, GenerationsCountUp) {
  EXPECT_EQ(*Directory().Claim("127.0.0.1:1"), 1u);
  EXPECT_EQ(*Directory().Claim("127.0.0.1:2"), 2u);
  EXPECT_TRUE(std::filesystem::exists(path_ + "/generation-00000002"));
  EXPECT_EQ(FileCount(), 2u) << "no temporary file is left";
}

TEST_F(JobDirectoryTest, ALivingOwnerIsFoundByItsAddressFileAndNothingIsWritten) {
  ASSERT_TRUE(Directory().WriteAddress("127.0.0.1:7").ok());
  const absl::Status status = Directory("127.0.0.1:7").CheckNoOwner();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(status.message().find("127.0.0.1:7"), absl::string_view::npos) << status;
  EXPECT_EQ(FileCount(), 1u);
}

TEST_F(JobDirectoryTest, ALivingOwnerIsFoundByItsRecordBeforeItsAddressFileIsThere) {
  ASSERT_TRUE(Directory().Claim("127.0.0.1:7").ok());
  EXPECT_EQ(Directory("127.0.0.1:7").CheckNoOwner().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Directory("127.0.0.1:7").Claim("127.0.0.1:8").status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(FileCount(), 1u);
}

TEST_F(JobDirectoryTest, AStaleAddressIsReplaced) {
  ASSERT_TRUE(Directory().Claim("127.0.0.1:7").ok());
  ASSERT_TRUE(Directory().WriteAddress("127.0.0.1:7").ok());
  EXPECT_TRUE(Directory().CheckNoOwner().ok());
  EXPECT_EQ(*Directory().Claim("127.0.0.1:8"), 2u);
  ASSERT_TRUE(Directory().WriteAddress("127.0.0.1:8").ok());
  EXPECT_EQ(*ReadWholeFile(*files_, path_ + "/coordinator.address"), "127.0.0.1:8\n");
  Directory().RemoveAddress("127.0.0.1:7");
  EXPECT_TRUE(std::filesystem::exists(path_ + "/coordinator.address")) << "it is another one's";
  Directory().RemoveAddress("127.0.0.1:8");
  EXPECT_FALSE(std::filesystem::exists(path_ + "/coordinator.address"));
}

TEST_F(JobDirectoryTest, OfManyThatStartAtOnceExactlyOneOwnsTheJob) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> owners = 0;
    std::atomic<int> refused = 0;
    std::vector<std::thread> starting;
    for (int i = 0; i < 8; ++i) {
      starting.emplace_back([&, i] {
        // Each one answers already when it claims, as main has it.
        JobDirectory directory(*files_, path_, [&](const std::string& address) {
          const bool lives = address.rfind(std::to_string(round) + ":", 0) == 0;
          return lives ? absl::OkStatus() : absl::UnavailableError("connection refused");
        });
        const auto generation = directory.Claim(std::to_string(round) + ":" + std::to_string(i));
        if (generation.ok()) ++owners;
        if (absl::IsAlreadyExists(generation.status())) ++refused;
      });
    }
    for (auto& thread : starting) thread.join();
    EXPECT_EQ(owners, 1) << "round " << round;
    EXPECT_EQ(refused, 7) << "round " << round;
  }
}

TEST_F(JobDirectoryTest, ADamagedRecordNamesNobodyButKeepsItsNumber) {
  ASSERT_TRUE(Directory().Claim("127.0.0.1:7").ok());
  ASSERT_TRUE(WriteFileAtomically(*files_, path_ + "/generation-00000001",
                                  "address 127.0.0.1:9\ncrc32 00000000\n")
                  .ok());
  EXPECT_EQ(*Directory("127.0.0.1:9").Claim("127.0.0.1:8"), 2u);
}

TEST_F(JobDirectoryTest, ADirectoryThatCannotBeMadeIsAClearError) {
  ASSERT_TRUE(WriteFileAtomically(*files_, path_ + "/file", "x").ok());
  JobDirectory directory(*files_, path_ + "/file/out",
                         [](const std::string&) { return absl::UnavailableError(""); });
  EXPECT_TRUE(directory.CheckNoOwner().ok());
  const absl::Status status = directory.Prepare();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find(path_ + "/file"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace parley
