#include "common/file_system.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/clock/steady_now.h"
#include "common/posix_writable_file.h"

namespace {

std::atomic<uint64_t> brought_to_disk = 0;  // bytes
std::atomic<int> disk_error = 0;            // what that ends with

}  // namespace

// In place of libc's: whether bytes are on the disk cannot be seen.
extern "C" int sync_file_range(int /*fd*/, off64_t /*offset*/, off64_t count, unsigned /*flags*/) {
  brought_to_disk += static_cast<uint64_t>(count);
  errno = disk_error;
  return errno == 0 ? 0 : -1;
}

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
  const absl::Time before = SteadyNow() - absl::Seconds(1);
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

// Longer than the pieces in which files are written, at lengths that no disk takes directly.
class LargeFileTest : public FileSystemTest {
 protected:
  static constexpr uint64_t kPieceBytes = PosixWritableFile::kPieceBytes;
  static constexpr uint64_t kBytes = 3 * kPieceBytes + 12345;

  LargeFileTest() : content_(kBytes) {
    std::mt19937 random(7);
    for (size_t i = 0; i + 4 <= kBytes; i += 4) {
      const uint32_t word = random();
      std::memcpy(&content_[i], &word, sizeof(word));
    }
  }

  absl::Span<const std::byte> Part(uint64_t begin, uint64_t end) const {
    return absl::MakeConstSpan(content_).subspan(begin, end - begin);
  }

  // What is there by now, read by nothing of ours.
  std::vector<std::byte> Plainly(const std::string& path) {
    std::vector<std::byte> result(std::filesystem::file_size(path));
    std::ifstream file(path, std::ios::binary);
    file.read(reinterpret_cast<char*>(result.data()), static_cast<std::streamsize>(result.size()));
    return result;
  }

  std::vector<std::byte> content_;
};

TEST_F(LargeFileTest, WhateverThePartsAndSyncsTheFileIsTheirSequence) {
  std::mt19937 random(1);
  for (int turn = 0; turn < 4; ++turn) {
    const std::string path = Path("large");
    auto file = files_->Create(path);
    ASSERT_TRUE(file.ok());
    for (uint64_t begin = 0; begin < kBytes;) {
      const uint64_t most = turn % 2 == 0 ? kBytes : kPieceBytes;
      const uint64_t end = std::min<uint64_t>(kBytes, begin + 1 + random() % most);
      ASSERT_TRUE((*file)->Append(Part(begin, end)).ok());
      if (random() % 4 == 0) {
        ASSERT_TRUE((*file)->Sync().ok());
        const std::vector<std::byte> there = Plainly(path);
        ASSERT_TRUE(there.size() == end &&
                    std::equal(there.begin(), there.end(), content_.begin()));
      }
      begin = end;
    }
    ASSERT_TRUE((*file)->Close().ok());
    ASSERT_TRUE(Plainly(path) == content_);
  }
}

// Who counts what was appended, to see whether a file is being written, counts what is written.
TEST_F(LargeFileTest, WhereItCannotBeDirectAPieceIsOnTheDiskBeforeTheNextButOneIsTaken) {
  const std::string path = Path("not direct");
  PosixWritableFile file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), path,
                         /*direct=*/false);
  brought_to_disk = 0;
  for (uint64_t pieces = 1; pieces <= 3; ++pieces) {
    ASSERT_TRUE(file.Append(Part((pieces - 1) * kPieceBytes, pieces * kPieceBytes)).ok());
    EXPECT_GE(brought_to_disk, (pieces - 1) * kPieceBytes);
  }
  ASSERT_TRUE(file.Append(Part(3 * kPieceBytes, kBytes)).ok());
  ASSERT_TRUE(file.Sync().ok());
  EXPECT_EQ(brought_to_disk, 3 * kPieceBytes);
  ASSERT_TRUE(file.Close().ok());
  EXPECT_TRUE(Plainly(path) == content_);
}

TEST_F(LargeFileTest, WhatCannotBeBroughtToTheDiskIsToldWhereThatIsKnown) {
  for (const auto& [error, code] :
       {std::pair(EIO, absl::StatusCode::kUnavailable), std::pair(EINVAL, absl::StatusCode::kOk)}) {
    disk_error = error;
    const std::string path = Path("not direct");
    PosixWritableFile file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), path,
                           /*direct=*/false);
    file.Append(Part(0, kBytes)).IgnoreError();
    EXPECT_EQ(file.Sync().code(), code) << "the file system knows nothing of EINVAL's call";
    EXPECT_EQ(file.Close().code(), code);
    disk_error = 0;
  }
}

// /dev/full takes nothing.
TEST_F(LargeFileTest, WhatCannotBeWrittenIsToldAtTheLatestBySync) {
  for (const uint64_t bytes : {uint64_t{10}, kPieceBytes, kBytes}) {
    auto file = files_->Create("/dev/full");
    ASSERT_TRUE(file.ok());
    (*file)->Append(Part(0, bytes)).IgnoreError();
    EXPECT_EQ((*file)->Sync().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ((*file)->Close().code(), absl::StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace parley
