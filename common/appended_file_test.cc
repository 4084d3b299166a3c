#include "common/appended_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace parley {
namespace {

std::string PathOf(const char* name) {
  const std::string path = std::filesystem::path(testing::TempDir()) / name;
  std::filesystem::remove(path);
  return path;
}

std::string ContentOf(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

TEST(AppendedFile, GrowsAtItsEndAlsoWhenItIsOpenedAgain) {
  const std::string path = PathOf("grows");
  for (const char* record : {"one\n", "two\n"}) {
    auto file = AppendedFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Append(record).ok());
    ASSERT_TRUE(file->Append(record).ok());
  }
  EXPECT_EQ(ContentOf(path), "one\none\ntwo\ntwo\n");
}

TEST(AppendedFile, TellsHowItEnds) {
  const std::string path = PathOf("ends");
  auto file = AppendedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE(*file->EndsOtherThan('\n')) << "it is empty";
  ASSERT_TRUE(file->Append("torn").ok());
  EXPECT_TRUE(*file->EndsOtherThan('\n'));
  ASSERT_TRUE(file->Append(" no more\n").ok());
  EXPECT_FALSE(*file->EndsOtherThan('\n'));
}

TEST(AppendedFile, IsCreatedOnce) {
  const std::string path = PathOf("once");
  EXPECT_TRUE(AppendedFile::Create(path).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(AppendedFile::Create(path).status()));
}

TEST(AppendedFile, NamesWhatCannotBeOpened) {
  const std::string path = PathOf("no_folder") + "/file";
  const absl::Status status = AppendedFile::Open(path).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_NE(status.message().find(path), std::string::npos) << status;
}

TEST(AppendedFile, TellsOfAFullDisk) {
  auto file = AppendedFile::Open("/dev/full");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(absl::IsResourceExhausted(file->Append("lost\n")));
}

TEST(AppendedFile, TellsOfARecordThatIsThereInPart) {
  const std::string path = PathOf("part");
  auto file = AppendedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small = {6, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = file->Append("0123456789\n");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(ContentOf(path), "012345");
  EXPECT_TRUE(*file->EndsOtherThan('\n'));
}

}  // namespace
}  // namespace parley
