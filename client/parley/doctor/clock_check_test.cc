#include "client/parley/doctor/clock_check.h"

#include <gtest/gtest.h>

#include "common/memory_file_system.h"
#include "server/coordinator/job_log.h"

namespace parley {
namespace {

TEST(CheckClock, ASynchronisedOneIsOk) {
  for (const Finding& finding :
       CheckClock({.told = true, .synchronised = true, .largest_error = absl::Milliseconds(3)})) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.found;
  }
}

TEST(CheckClock, OneThatNobodySynchronisesIsAWarning) {
  const Findings findings = CheckClock({.told = true});
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  EXPECT_NE(findings[0].remedy.find("set-ntp"), std::string::npos);
  EXPECT_EQ(CheckClock({})[0].severity, Severity::kWarning);
}

TEST(CheckClock, AMonotonicClockThatGoesBackFails) {
  const Findings findings = CheckClock({.told = true, .synchronised = true, .goes_back = true});
  EXPECT_EQ(findings[1].what, "monotonic clock");
  EXPECT_EQ(findings[1].severity, Severity::kFailure);
  EXPECT_NE(findings[1].remedy.find("clocksource"), std::string::npos);
}

TEST(CheckClock, ThisMachinesDoesNotGoBack) { EXPECT_FALSE(LookAtClock().goes_back); }

TEST(CheckSkew, SeverityRisesWithIt) {
  const auto severity = [](absl::Duration ahead, absl::Duration uncertain) {
    return CheckSkew("clock", "the file server", {ahead, uncertain}).severity;
  };
  EXPECT_EQ(severity(absl::ZeroDuration(), absl::ZeroDuration()), Severity::kOk);
  EXPECT_EQ(severity(absl::Seconds(5), absl::Seconds(6)), Severity::kOk);
  EXPECT_EQ(severity(absl::Seconds(5), absl::Seconds(1)), Severity::kWarning);
  EXPECT_EQ(severity(-absl::Seconds(5), absl::Seconds(1)), Severity::kWarning);
  EXPECT_EQ(severity(absl::Minutes(5), absl::Seconds(1)), Severity::kFailure);
  EXPECT_EQ(severity(-absl::Minutes(5), absl::Seconds(1)), Severity::kFailure);
  const Finding finding = CheckSkew("file server's clock", "the file server",
                                    {-absl::Minutes(5), absl::ZeroDuration()});
  EXPECT_EQ(finding.found, "that of the file server is 300 s behind this machine's");
  EXPECT_NE(finding.remedy.find("chrony"), std::string::npos);
}

TEST(CoordinatorSkew, FollowsFromItsNewestRecordAndTheFileServersClock) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.CreateDirectories("/run").ok());
  EXPECT_FALSE(CoordinatorSkew(files, "/run", {}).has_value());
  const absl::Time server = absl::FromUnixSeconds(2'000'000'000);
  files.SetNow(server);
  auto log = JobLog::Open(files, "/run/log", "digits");
  ASSERT_TRUE(log.ok()) << log.status();
  // The coordinator's clock is 90 s ahead of the file server's, then 100 s.
  ASSERT_TRUE(log->Take("node8:77", {}, server + absl::Seconds(90)).ok());
  ASSERT_TRUE(log->Append({}, server + absl::Seconds(100)).ok());
  // The file server's is 30 s behind ours.
  const auto skew = CoordinatorSkew(files, "/run", {-absl::Seconds(30), absl::Seconds(2)});
  ASSERT_TRUE(skew.has_value());
  EXPECT_EQ(skew->ahead, absl::Seconds(70));
  EXPECT_EQ(skew->uncertain, absl::Seconds(3));
}

}  // namespace
}  // namespace parley
