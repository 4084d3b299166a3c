#include "common/memory_file_system.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace parley {
namespace {

using Fault = MemoryFileSystem::Fault;

class MemoryFileSystemTest : public testing::Test {
 protected:
  MemoryFileSystemTest() { MakeFolder(files_); }

  static void MakeFolder(MemoryFileSystem& files) {
    EXPECT_TRUE(files.CreateDirectories("/a/b").ok());
    EXPECT_TRUE(files.SyncDirectory("/").ok());
    EXPECT_TRUE(files.SyncDirectory("/a").ok());
  }

  static absl::Status Write(MemoryFileSystem& files, const std::string& path,
                            const std::string& content, bool sync) {
    auto file = files.Create(path);
    if (!file.ok()) return file.status();
    auto status = (*file)->Append(
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(content.data()), content.size()));
    if (status.ok() && sync) status = (*file)->Sync();
    return status;
  }

  MemoryFileSystem files_;
};

TEST_F(MemoryFileSystemTest, WhatIsSyncedOutlivesEveryCrash) {
  for (uint64_t seed = 0; seed < 32; ++seed) {
    ASSERT_TRUE(WriteFileAtomically(files_, "/a/b/file", std::to_string(seed)).ok());
    files_.Restart(seed);
    ASSERT_EQ(*ReadWholeFile(files_, "/a/b/file"), std::to_string(seed));
  }
}

TEST_F(MemoryFileSystemTest, WhatIsNotSyncedIsLostInEveryWay) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    MemoryFileSystem files;
    MakeFolder(files);
    ASSERT_TRUE(Write(files, "/a/b/file", "xy", /*sync=*/false).ok());
    files.Restart(seed);
    const auto content = ReadWholeFile(files, "/a/b/file");
    seen.insert(content.ok() ? *content : "no file");
  }
  const std::set<std::string> all = {"no file",           "", "x", "xy", std::string(1, '\0'),
                                     std::string(2, '\0')};
  EXPECT_EQ(seen, all);
}

TEST_F(MemoryFileSystemTest, AFolderWhoseParentWasNotSyncedMayGoWithAllThatIsInIt) {
  int gone = 0;
  for (uint64_t seed = 0; seed < 32; ++seed) {
    MemoryFileSystem files;
    MakeFolder(files);
    ASSERT_TRUE(files.CreateDirectories("/a/b/c").ok());
    ASSERT_TRUE(WriteFileAtomically(files, "/a/b/c/file", "x").ok());
    files.Restart(seed);
    if (!files.Exists("/a/b/c/file")) ++gone;
  }
  EXPECT_GT(gone, 0);
  EXPECT_LT(gone, 32);
}

TEST_F(MemoryFileSystemTest, AfterACrashNothingWorksUntilTheRestart) {
  files_.SetFault(files_.operations() + 1, Fault::kCrash);
  EXPECT_FALSE(files_.Create("/a/b/file").ok());
  EXPECT_FALSE(files_.List("/a/b").ok());
  files_.Restart(1);
  EXPECT_TRUE(files_.List("/a/b").ok());
}

TEST_F(MemoryFileSystemTest, ExclusiveCreationIsTrueToItsAnswerAtEveryFault) {
  for (const Fault fault : {Fault::kFails, Fault::kLostReply, Fault::kRepeated, Fault::kCrash}) {
    for (int at = 1; at <= 8; ++at) {
      SCOPED_TRACE(std::to_string(static_cast<int>(fault)) + " at " + std::to_string(at));
      MemoryFileSystem files;
      MakeFolder(files);
      files.SetFault(files.operations() + at, fault);
      const absl::Status made = CreateExclusively(files, "/a/b/file", "/a/b/.1", "one");
      ASSERT_TRUE(made.ok() || at < 8) << "it has seven operations";
      EXPECT_FALSE(absl::IsAlreadyExists(made)) << made;
      files.Restart(at);
      ASSERT_TRUE(!made.ok() || files.Exists("/a/b/file"));
      if (!files.Exists("/a/b/file")) continue;
      EXPECT_EQ(*ReadWholeFile(files, "/a/b/file"), "one") << "whole, if it is there";
      EXPECT_TRUE(absl::IsAlreadyExists(CreateExclusively(files, "/a/b/file", "/a/b/.2", "two")));
      EXPECT_EQ(*ReadWholeFile(files, "/a/b/file"), "one");
      EXPECT_FALSE(files.Exists("/a/b/.2"));
    }
  }
}

}  // namespace
}  // namespace parley
