#include "client/parley/doctor/directory_probe.h"

#include <gtest/gtest.h>

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/memory_file_system.h"

namespace parley {
namespace {

// A file system with the faults of a bad one.
class BadFileSystem final : public FileSystem {
 public:
  absl::Status create;             // the files' own
  bool link_makes_a_copy = false;  // and never says that there is one
  bool cannot_link = false;
  bool rename_removes_first = false;  // and the first time a reader comes in between
  absl::Duration sync;                // moves the clock on

  MemoryFileSystem& memory() { return memory_; }
  absl::Time now() const { return now_; }
  void SetServerClock(absl::Time time) { memory_.SetNow(time); }

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    if (!create.ok()) return create;
    auto file = memory_.Create(path);
    if (!file.ok()) return file.status();
    return std::make_unique<SlowFile>(*this, *std::move(file));
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    auto file = memory_.Open(path);
    if (!file.ok()) {
      absl::MutexLock lock(&mu_);
      gap_seen_ = true;
    }
    return file;
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename_removes_first && memory_.Remove(to).ok()) {
      absl::MutexLock lock(&mu_);
      mu_.AwaitWithTimeout(absl::Condition(&gap_seen_), absl::Seconds(30));
    }
    return memory_.Rename(from, to);
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    if (cannot_link)
      return absl::UnavailableError(to + ": cannot make it: Operation not permitted");
    if (link_makes_a_copy) return absl::OkStatus();
    return memory_.Link(from, to);
  }
  absl::Status Remove(const std::string& path) override { return memory_.Remove(path); }
  absl::Status RemoveDirectory(const std::string& path) override {
    return memory_.RemoveDirectory(path);
  }
  absl::Status CreateDirectories(const std::string& path) override {
    return memory_.CreateDirectories(path);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return memory_.SyncDirectory(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    return memory_.List(directory);
  }
  bool Exists(const std::string& path) override { return memory_.Exists(path); }
  absl::StatusOr<FileInfo> Info(const std::string& path) override { return memory_.Info(path); }

 private:
  class SlowFile final : public WritableFile {
   public:
    SlowFile(BadFileSystem& files, std::unique_ptr<WritableFile> file)
        : files_(files), file_(std::move(file)) {}
    absl::Status Append(absl::Span<const std::byte> bytes) override { return file_->Append(bytes); }
    absl::Status Sync() override {
      if (files_.sync > absl::ZeroDuration()) files_.now_ += files_.sync;
      return file_->Sync();
    }
    absl::Status Close() override { return file_->Close(); }

   private:
    BadFileSystem& files_;
    std::unique_ptr<WritableFile> file_;
  };

  MemoryFileSystem memory_;
  absl::Mutex mu_;
  bool gap_seen_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000'000);  // as MemoryFileSystem's own
};

class DirectoryProbeTest : public testing::Test {
 protected:
  DirectoryProbeTest() { EXPECT_TRUE(files_.CreateDirectories("/home").ok()); }

  // All of it: by name, what is not ok.
  Findings Probe(const std::string& directory = "/home/runs/mine") {
    DirectoryProbe probe(files_, directory, [this] { return files_.now(); });
    Findings findings;
    if (probe.Begin(findings)) {
      probe.TryWriting(findings);
      probe.TryRenaming(findings);
      probe.TryExclusiveCreation(findings);
    }
    probe.End();
    skew_ = probe.skew();
    Findings bad;
    for (const Finding& finding : findings) {
      if (finding.severity != Severity::kOk) bad.push_back(finding);
    }
    looked_at_ = findings.size();
    return bad;
  }

  BadFileSystem files_;
  std::optional<ClockSkew> skew_;
  size_t looked_at_ = 0;
};

TEST_F(DirectoryProbeTest, AGoodFileSystemHasNoFaultAndNothingStays) {
  EXPECT_TRUE(Probe().empty());
  EXPECT_EQ(looked_at_, 4u);
  EXPECT_FALSE(files_.Exists("/home/runs"));
  ASSERT_TRUE(skew_.has_value());
  EXPECT_EQ(skew_->ahead, absl::ZeroDuration());
}

TEST_F(DirectoryProbeTest, ADirectoryThatIsThereStaysAsItIs) {
  ASSERT_TRUE(files_.CreateDirectories("/home/runs").ok());
  ASSERT_TRUE(WriteFileAtomically(files_, "/home/runs/file", "kept").ok());
  EXPECT_TRUE(Probe("/home/runs").empty());
  EXPECT_EQ(*files_.List("/home/runs"), std::vector<std::string>{"file"});
}

TEST_F(DirectoryProbeTest, AFullDiskIsToBeFreedAndAClosedOneOpened) {
  files_.create = absl::ResourceExhaustedError("/home: cannot create: No space left on device");
  Findings bad = Probe();
  ASSERT_FALSE(bad.empty());
  EXPECT_EQ(bad[0].what, "write and sync");
  EXPECT_EQ(bad[0].severity, Severity::kFailure);
  EXPECT_NE(bad[0].remedy.find("df -h"), std::string::npos);
  files_.create = absl::PermissionDeniedError("/home: cannot create: Permission denied");
  bad = Probe();
  ASSERT_FALSE(bad.empty());
  EXPECT_NE(bad[0].remedy.find("chmod u+rwx /home/runs/mine"), std::string::npos);
  files_.create = absl::PermissionDeniedError("/home: cannot create: Read-only file system");
  bad = Probe();
  ASSERT_FALSE(bad.empty());
  EXPECT_NE(bad[0].remedy.find("mounted to be written"), std::string::npos);
}

TEST_F(DirectoryProbeTest, AFileInTheWayFails) {
  ASSERT_TRUE(WriteFileAtomically(files_, "/home/runs", "a file").ok());
  const Findings bad = Probe();
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].what, "job directory");
  EXPECT_EQ(bad[0].severity, Severity::kFailure);
  EXPECT_EQ(looked_at_, 1u);
  EXPECT_TRUE(files_.Exists("/home/runs"));
}

TEST_F(DirectoryProbeTest, ASlowSyncIsAWarning) {
  files_.sync = absl::Seconds(3);
  const Findings bad = Probe();
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].what, "write and sync");
  EXPECT_EQ(bad[0].severity, Severity::kWarning);
  EXPECT_NE(bad[0].found.find("3000.0 ms"), std::string::npos);
}

TEST_F(DirectoryProbeTest, ARenameThatIsNotAtomicIsSeenByAReader) {
  files_.rename_removes_first = true;
  const Findings bad = Probe();
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].what, "atomic rename");
  EXPECT_EQ(bad[0].severity, Severity::kFailure);
  EXPECT_NE(bad[0].found.find("a reader meanwhile got"), std::string::npos);
}

TEST_F(DirectoryProbeTest, CreationThatIsNotExclusiveFails) {
  files_.link_makes_a_copy = true;
  Findings bad = Probe();
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].what, "exclusive creation");
  EXPECT_EQ(bad[0].severity, Severity::kFailure);
  EXPECT_NE(bad[0].remedy.find("two coordinators could rule one job"), std::string::npos);
  files_.link_makes_a_copy = false;
  files_.cannot_link = true;
  bad = Probe();
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].what, "exclusive creation");
  EXPECT_NE(bad[0].remedy.find("(link)"), std::string::npos);
}

TEST_F(DirectoryProbeTest, MeasuresTheFileServersClock) {
  files_.SetServerClock(files_.now() + absl::Minutes(5));
  EXPECT_TRUE(Probe().empty());
  ASSERT_TRUE(skew_.has_value());
  EXPECT_EQ(skew_->ahead, absl::Minutes(5));
  files_.SetServerClock(files_.now() - absl::Seconds(9));
  Probe();
  ASSERT_TRUE(skew_.has_value());
  EXPECT_EQ(skew_->ahead, -absl::Seconds(9));
}

}  // namespace
}  // namespace parley
