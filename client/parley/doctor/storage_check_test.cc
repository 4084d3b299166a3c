#include "client/parley/doctor/storage_check.h"

#include <gtest/gtest.h>

#include "client/parley/doctor/job_directory_check.h"
#include "common/file_system.h"

namespace parley {
namespace {

StorageFacts GoodFacts() {
  StorageFacts facts;
  facts.kind = KindOfStorage(0xEF53);
  facts.free_bytes = uint64_t{100} << 30;
  facts.free_files = 1'000'000;
  facts.counts_files = true;
  facts.longest_name = 255;
  facts.mode = 0755;
  return facts;
}

JobNeeds Needs() {
  JobNeeds needs;
  needs.checkpoint = uint64_t{10} << 30;
  needs.checkpoints = 6;
  return needs;
}

// What CheckStorage has found under a name.
Finding Check(const StorageFacts& facts, const std::string& what,
              const std::string& directory = "/home/runs", bool all_here = true) {
  JobNeeds needs = Needs();
  needs.all_here = all_here;
  Findings others;
  Finding found;
  for (const Finding& finding : CheckStorage(facts, directory, needs)) {
    if (finding.what == what) {
      found = finding;
    } else {
      EXPECT_EQ(finding.severity, Severity::kOk) << finding.what << ": " << finding.found;
    }
  }
  EXPECT_EQ(found.what, what);
  return found;
}

TEST(CheckStorage, ADiskOfTheMachineIsOkForAJobOnIt) {
  EXPECT_EQ(Check(GoodFacts(), "file system").severity, Severity::kOk);
  EXPECT_EQ(Check(GoodFacts(), "file system").found, "ext4 holds /home/runs");
}

TEST(CheckStorage, AJobOnSeveralMachinesWantsAFileSystemOfAll) {
  const Finding finding = Check(GoodFacts(), "file system", "/home/runs", /*all_here=*/false);
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_NE(finding.remedy.find("NFS"), std::string::npos);
  StorageFacts facts = GoodFacts();
  facts.kind = KindOfStorage(0x6969);
  EXPECT_EQ(Check(facts, "file system", "/home/runs", /*all_here=*/false).severity, Severity::kOk);
}

TEST(CheckStorage, MemoryAndAContainersLayerDoNotLast) {
  StorageFacts facts = GoodFacts();
  facts.kind = KindOfStorage(0x01021994);
  EXPECT_EQ(Check(facts, "file system").severity, Severity::kWarning);
  EXPECT_NE(Check(facts, "file system").found.find("tmpfs holds /home/runs: this machine's memory"),
            std::string::npos);
  facts.kind = KindOfStorage(0x794C7630);
  EXPECT_NE(Check(facts, "file system").remedy.find("container"), std::string::npos);
}

TEST(CheckStorage, AFolderThatAllMayWriteFails) {
  StorageFacts facts = GoodFacts();
  facts.mode = 0777;
  Finding finding = Check(facts, "directory's mode");
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_EQ(finding.found.substr(0, 4), "0777");
  EXPECT_NE(finding.remedy.find("chmod o-w /home/runs"), std::string::npos);
  facts.mode = 01777;
  finding = Check(facts, "directory's mode");
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_NE(finding.remedy.find("--out=/home/runs/NAME"), std::string::npos);
}

TEST(CheckStorage, AnotherUsersFolderIsAWarning) {
  StorageFacts facts = GoodFacts();
  facts.owner = 1000;
  facts.user = 1001;
  EXPECT_EQ(Check(facts, "directory's mode").severity, Severity::kWarning);
}

TEST(CheckStorage, NamesMustHaveTheirLength) {
  StorageFacts facts = GoodFacts();
  facts.longest_name = 80;
  EXPECT_EQ(Check(facts, "names' length").severity, Severity::kFailure);
  EXPECT_EQ(Check(GoodFacts(), "names' length", "/" + std::string(4000, 'd')).severity,
            Severity::kFailure);
}

TEST(CheckSpace, OneCheckpointIsTheLeast) {
  StorageFacts facts = GoodFacts();
  EXPECT_EQ(CheckSpace(facts, "/home/runs", Needs()).severity, Severity::kOk);
  facts.free_bytes = uint64_t{30} << 30;  // three of six
  Finding finding = CheckSpace(facts, "/home/runs", Needs());
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_NE(finding.remedy.find("checkpoint.keep_last"), std::string::npos);
  facts.free_bytes = uint64_t{9} << 30;
  finding = CheckSpace(facts, "/home/runs", Needs());
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_EQ(finding.found.substr(0, 13), "9.00 GiB free");
  EXPECT_NE(finding.remedy.find("1.02 GiB on the disk of /home/runs"), std::string::npos);
  facts = GoodFacts();
  facts.free_files = 3;
  EXPECT_EQ(CheckSpace(facts, "/home/runs", Needs()).severity, Severity::kWarning);
  facts.counts_files = false;
  EXPECT_EQ(CheckSpace(facts, "/home/runs", Needs()).severity, Severity::kOk);
}

// All of it on a real folder, which stays as it is.
TEST(CheckJobDirectory, LooksAtTheRealOne) {
  const std::string directory = testing::TempDir() + "/new/runs";
  const DirectoryReport report = CheckJobDirectory(directory, directory + "/checkpoints", {});
  EXPECT_TRUE(report.usable);
  EXPECT_EQ(report.findings.size(), 9u);
  for (const Finding& finding : report.findings) {
    EXPECT_NE(finding.severity, Severity::kFailure) << finding.what << ": " << finding.found;
  }
  EXPECT_FALSE(PosixFileSystem()->Exists(testing::TempDir() + "/new"));
}

}  // namespace
}  // namespace parley
