#include "client/parley/doctor/coordinator_check.h"

#include <gtest/gtest.h>

#include "client/parley/doctor/network_for_test.h"
#include "common/memory_file_system.h"

namespace parley {
namespace {

class CoordinatorCheckTest : public testing::Test {
 protected:
  CoordinatorCheckTest() {
    status_.set_job("digits");
    status_.set_phase(GATHERING);
    status_.set_expected_members(4);
    EXPECT_TRUE(files_.CreateDirectories("/shared/run").ok());
  }

  // The last finding: the first that is not ok, or the answer.
  Finding Check(const std::string& coordinator, const std::string& job = "digits") {
    const CoordinatorQuestion question = {
        coordinator, job, [this](const std::string& address) -> absl::StatusOr<GetStatusReply> {
          asked_ = address;
          if (!answer_.ok()) return answer_;
          return status_;
        }};
    const Findings findings = CheckCoordinator(question, files_, network_);
    for (size_t i = 0; i + 1 < findings.size(); ++i) {
      EXPECT_EQ(findings[i].severity, Severity::kOk) << findings[i].found;
    }
    return findings.back();
  }

  MemoryFileSystem files_;
  NetworkForTest network_;
  GetStatusReply status_;
  absl::Status answer_;
  std::string asked_;
};

TEST_F(CoordinatorCheckTest, AsksWhereTheFileSays) {
  ASSERT_TRUE(WriteFileAtomically(files_, "/shared/run/coordinator.address", "node8:77\n").ok());
  const Finding finding = Check("file:/shared/run/coordinator.address");
  EXPECT_EQ(finding.severity, Severity::kOk);
  EXPECT_EQ(finding.found, "job digits, gathering, members: 0 of 4");
  EXPECT_EQ(asked_, "node8:77");
}

TEST_F(CoordinatorCheckTest, WithoutItsFileItIsToBeStartedOrTheFolderMounted) {
  const Finding finding = Check("file:/shared/run/coordinator.address");
  EXPECT_EQ(finding.what, "coordinator address");
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_NE(finding.remedy.find("--out=/shared/run"), std::string::npos);
  EXPECT_NE(finding.remedy.find("mount"), std::string::npos);
}

TEST_F(CoordinatorCheckTest, AFileThatIsNoneIsNamed) {
  ASSERT_TRUE(WriteFileAtomically(files_, "/shared/run/job.textproto", "name: \"x\"\n").ok());
  const Finding finding = Check("file:/shared/run/job.textproto");
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_NE(finding.found.find("/shared/run/job.textproto"), std::string::npos);
  EXPECT_NE(finding.remedy.find("coordinator.address"), std::string::npos);
  EXPECT_EQ(Check("nothing").remedy, "--coordinator=HOST:PORT or file:PATH");
}

TEST_F(CoordinatorCheckTest, AStaleAddressFileIsToldFromAFirewall) {
  ASSERT_TRUE(WriteFileAtomically(files_, "/shared/run/coordinator.address", "node8:77\n").ok());
  network_.connection = absl::UnavailableError("Connection refused");
  Finding finding = Check("file:/shared/run/coordinator.address");
  EXPECT_EQ(finding.what, "coordinator reachable");
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_NE(finding.remedy.find("/shared/run/coordinator.address is stale"), std::string::npos);
  network_.connection = absl::DeadlineExceededError("no answer within 5s");
  finding = Check("file:/shared/run/coordinator.address");
  EXPECT_NE(finding.remedy.find("firewall"), std::string::npos);
  network_.connection = absl::UnavailableError("Connection refused");
  EXPECT_NE(Check("node8:77").remedy.find("start parley-coordinator"), std::string::npos);
  EXPECT_EQ(asked_, "");
}

TEST_F(CoordinatorCheckTest, AnotherProgramOrAnotherJobIsNoCoordinatorOfThisOne) {
  answer_ = absl::UnavailableError("the coordinator at node8:77 does not answer");
  Finding finding = Check("node8:77");
  EXPECT_EQ(finding.what, "coordinator answer");
  EXPECT_EQ(finding.severity, Severity::kFailure);
  answer_ = absl::OkStatus();
  finding = Check("node8:77", "letters");
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_NE(finding.found.find("the job file is of job letters"), std::string::npos);
  EXPECT_EQ(Check("node8:77", "").severity, Severity::kOk);
  status_.set_phase(FINISHED);
  EXPECT_EQ(Check("node8:77").severity, Severity::kWarning);
}

TEST(FolderOfAddressFile, IsTheJobsDirectory) {
  EXPECT_EQ(FolderOfAddressFile("file:/shared/run/coordinator.address"), "/shared/run");
  EXPECT_EQ(FolderOfAddressFile("file:coordinator.address"), ".");
  EXPECT_EQ(FolderOfAddressFile("file:/coordinator.address"), "/");
  EXPECT_EQ(FolderOfAddressFile("node8:77"), "");
}

}  // namespace
}  // namespace parley
