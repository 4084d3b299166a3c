#include "common/file_system.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/time/clock.h"

namespace parley {
namespace {

class FileSystemTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) { return testing::TempDir() + "/" + name; }
  const std::unique_ptr<FileSystem> files_ = PosixFileSystem();
};

TEST_F(FileSystemTest, AnAtomicWriteReplacesTheWholeContent) {
  const std::string path = Path("replaced");
  ASSERT_TRUE(WriteFileAtomically(*files_, path, "a long first content").ok());
  ASSERT_TRUE(WriteFileAtomically(*files_, path, "short").ok());
  EXPECT_EQ(ReadWholeFile(*files_, path).value(), "short");
  EXPECT_FALSE(files_->Exists(path + ".tmp"));
}

TEST_F(FileSystemTest, ErrorsNameThePathAndTheKind) {
  const auto missing = files_->Open(Path("not here"));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("not here"), absl::string_view::npos);
  EXPECT_EQ(files_->Open(testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteFileAtomically(*files_, Path("no folder/file"), "x").code(),
            absl::StatusCode::kNotFound);
}

TEST_F(FileSystemTest, LinkIsExclusive) {
  ASSERT_TRUE(WriteFileAtomically(*files_, Path("first"), "1").ok());
  files_->Remove(Path("record")).IgnoreError();
  EXPECT_TRUE(files_->Link(Path("first"), Path("record")).ok());
  EXPECT_EQ(files_->Link(Path("first"), Path("record")).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(FileSystemTest, ExclusiveCreationGivesANameToTheFirstOneAlone) {
  const std::string path = Path("exclusive");
  files_->Remove(path).IgnoreError();
  EXPECT_TRUE(CreateExclusively(*files_, path, Path(".one"), "one").ok());
  EXPECT_EQ(CreateExclusively(*files_, path, Path(".two"), "two").code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadWholeFile(*files_, path).value(), "one");
  EXPECT_FALSE(files_->Exists(Path(".one")));
  EXPECT_FALSE(files_->Exists(Path(".two")));
  EXPECT_EQ(CreateExclusively(*files_, Path("no folder/file"), Path("no folder/.x"), "x").code(),
            absl::StatusCode::kNotFound);
}

TEST_F(FileSystemTest, TwoNamesOfOneFileHaveOneInode) {
  for (const char* name : {"a name", "a second name", "another file"}) {
    files_->Remove(Path(name)).IgnoreError();
  }
  const absl::Time before = absl::Now() - absl::Seconds(1);
  ASSERT_TRUE(WriteFileAtomically(*files_, Path("a name"), "1").ok());
  ASSERT_TRUE(WriteFileAtomically(*files_, Path("another file"), "1").ok());
  ASSERT_TRUE(files_->Link(Path("a name"), Path("a second name")).ok());
  const auto one = files_->Info(Path("a name"));
  const auto two = files_->Info(Path("a second name"));
  const auto other = files_->Info(Path("another file"));
  ASSERT_TRUE(one.ok() && two.ok() && other.ok());
  EXPECT_EQ(one->inode, two->inode);
  EXPECT_EQ(one->device, two->device);
  EXPECT_NE(one->inode, other->inode);
  EXPECT_GT(one->modified, before);
  EXPECT_EQ(files_->Info(Path("not here")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(FileSystemTest, ReadingPastTheEndIsDataLoss) {
  ASSERT_TRUE(WriteFileAtomically(*files_, Path("ten"), "0123456789").ok());
  const auto file = files_->Open(Path("ten"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->size(), 10U);
  std::byte bytes[4];
  EXPECT_TRUE((*file)->Read(6, absl::MakeSpan(bytes)).ok());
  EXPECT_EQ(static_cast<char>(bytes[3]), '9');
  EXPECT_EQ((*file)->Read(7, absl::MakeSpan(bytes)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadWholeFile(*files_, Path("ten"), 9).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace parley
