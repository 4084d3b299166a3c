#include "server/coordinator/job_directory.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

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

  JobDirectory Directory() { return JobDirectory(*files_, path_); }

  const std::unique_ptr<FileSystem> files_ = PosixFileSystem();
  std::string path_;
};

TEST_F(JobDirectoryTest, TheAddressFileGoesWithItsOwner) {
  EXPECT_EQ(*Directory().ReadAddress(), "") << "there is none";
  ASSERT_TRUE(Directory().WriteAddress("127.0.0.1:7").ok());
  ASSERT_TRUE(Directory().WriteAddress("127.0.0.1:8").ok());
  EXPECT_EQ(*Directory().ReadAddress(), "127.0.0.1:8");
  EXPECT_EQ(*ReadWholeFile(*files_, path_ + "/coordinator.address"), "127.0.0.1:8\n");
  Directory().RemoveAddress("127.0.0.1:7");
  EXPECT_TRUE(std::filesystem::exists(path_ + "/coordinator.address")) << "it is another one's";
  Directory().RemoveAddress("127.0.0.1:8");
  EXPECT_FALSE(std::filesystem::exists(path_ + "/coordinator.address"));
}

TEST_F(JobDirectoryTest, ItsNameIsTheLastPartOfItsPath) {
  for (const char* path : {"/runs/mine", "/runs/mine/", "/runs/./other/../mine", "/runs/mine/."}) {
    EXPECT_EQ(JobDirectory(*files_, path).name(), "mine") << path;
  }
}

TEST_F(JobDirectoryTest, PathsOfTheJobFileAreRelativeToIt) {
  EXPECT_EQ(Directory().Resolved("board"), path_ + "/board");
  EXPECT_EQ(Directory().Resolved("./a/../board"), path_ + "/board");
  EXPECT_EQ(Directory().Resolved("/data/board"), "/data/board");
}

TEST_F(JobDirectoryTest, TheFileForScriptsIsThereWhileTheJobIsStopped) {
  const std::string file = path_ + "/stopped";
  ASSERT_TRUE(Directory().WriteStopped(false).ok());
  EXPECT_FALSE(std::filesystem::exists(file));
  ASSERT_TRUE(Directory().WriteStopped(true).ok());
  ASSERT_TRUE(Directory().WriteStopped(true).ok()) << "again";
  EXPECT_TRUE(std::filesystem::exists(file));
  ASSERT_TRUE(Directory().WriteStopped(false).ok());
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(JobDirectoryTest, ANameThatNoMessageCanHaveIsRefused) {
  EXPECT_EQ(JobDirectory::CheckName("/runs/caf\xc3\xa9"), absl::OkStatus());
  const absl::Status status = JobDirectory::CheckName("/runs/caf\xe9/out");
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find("/runs/caf\xef\xbf\xbd/out is not UTF-8 (byte 9"),
            absl::string_view::npos)
      << status;
}

TEST_F(JobDirectoryTest, ADirectoryThatCannotBeMadeIsAClearError) {
  ASSERT_TRUE(WriteFileAtomically(*files_, path_ + "/file", "x").ok());
  JobDirectory directory(*files_, path_ + "/file/out");
  const absl::Status status = directory.Prepare();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find(path_ + "/file"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace parley
