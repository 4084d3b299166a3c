#include "client/parley/doctor/credentials_check.h"

#include <gtest/gtest.h>

#include <memory>

namespace parley {
namespace {

TEST(CheckCredentials, WhatTheyAreIsTold) {
  EXPECT_EQ(CheckCredentials(SharedCredentials()).severity, Severity::kOk);
  Credentials credentials = {.token = "secret"};
  const auto found = [&] {
    return CheckCredentials(SharedCredentials(std::make_shared<const Credentials>(credentials)));
  };
  EXPECT_EQ(found().found, "the job's token");
  credentials.key = "PEM";
  EXPECT_EQ(found().found, "the job's certificate and token") << "and nothing that is in them";
}

TEST(CheckCredentials, OnesThatOthersMayReadFail) {
  const Finding finding = CheckCredentials(absl::PermissionDeniedError("others may read it"));
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_EQ(finding.found, "others may read it");
  EXPECT_NE(finding.remedy.find("0600"), std::string::npos);
}

TEST(CheckCredentials, ADirectoryThatIsNoneIsAnotherChecksMatter) {
  EXPECT_EQ(CheckCredentials(absl::FailedPreconditionError("Not a directory")).severity,
            Severity::kWarning);
}

TEST(CheckCredentials, AFileThatIsNoneFails) {
  const Finding finding = CheckCredentials(absl::DataLossError("no token in it"));
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_NE(finding.remedy.find("take the file away"), std::string::npos);
}

}  // namespace
}  // namespace parley
