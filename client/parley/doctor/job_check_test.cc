#include "client/parley/doctor/job_check.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

TEST(CheckJobFile, NamesTheField) {
  EXPECT_EQ(CheckJobFile("job.textproto", absl::OkStatus()).severity, Severity::kOk);
  const Finding finding =
      CheckJobFile("job.textproto", absl::InvalidArgumentError("job.textproto:7: cluster.shards"));
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_EQ(finding.found, "job.textproto:7: cluster.shards");
}

TEST(CheckModelAndData, AMissingFileIsTheUsersAndACrashIsNot) {
  DescribedJob described;
  described.model.tensors.resize(1);
  described.model.tensors[0].set_dtype(F32);
  described.model.training_samples = 600;
  EXPECT_EQ(CheckModelAndData(described).severity, Severity::kOk);
  described.code = kWrongUsage;
  described.error = "/data/train.gz: cannot open\napt install dataset";
  Finding finding = CheckModelAndData(described);
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_EQ(finding.found, "/data/train.gz: cannot open; apt install dataset");
  EXPECT_NE(finding.remedy.find("mount or copy it"), std::string::npos);
  described.code = kFailed;
  EXPECT_NE(CheckModelAndData(described).remedy.find("parley plan"), std::string::npos);
}

TEST(CheckModelAndData, ThoseOfAProgramOfOnesOwnAreNotLookedAt) {
  DescribedJob described;
  described.own_program = true;
  const Finding finding = CheckModelAndData(described);
  EXPECT_EQ(finding.severity, Severity::kOk);
  EXPECT_NE(finding.found.find("not looked at"), std::string::npos) << finding.found;
}

TEST(JobStartFinding, SaysWhoseTheDirectoryIs) {
  EXPECT_EQ(JobStartFinding("/runs/mine", absl::OkStatus()).severity, Severity::kOk);
  Finding finding = JobStartFinding("/runs/mine", absl::AlreadyExistsError("runs at node8:77"));
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_NE(finding.remedy.find("another --out"), std::string::npos);
  finding = JobStartFinding("/runs/mine", absl::FailedPreconditionError("has not ended"));
  EXPECT_NE(finding.remedy.find("start the coordinator"), std::string::npos);
  finding =
      JobStartFinding("/runs/mine", absl::InvalidArgumentError("checkpoint.start_from: none"));
  EXPECT_NE(finding.remedy.find("checkpoint.start_from"), std::string::npos);
}

}  // namespace
}  // namespace parley
