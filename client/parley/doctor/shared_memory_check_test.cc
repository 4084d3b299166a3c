#include "client/parley/doctor/shared_memory_check.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

SharedMemoryFacts GoodFacts() {
  SharedMemoryFacts facts;
  facts.socket_buffer = 4 << 20;
  facts.longest_name = 107;
  return facts;
}

TEST(CheckSharedMemory, AllIsWellOnThisMachine) {
  const Findings findings = CheckSharedMemory(LookAtSharedMemory(SystemFiles()), "127.0.0.1");
  EXPECT_EQ(findings.size(), 3u);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.what << ": " << finding.found;
  }
}

TEST(CheckSharedMemory, WithoutItAJobIsSlowerAndRuns) {
  SharedMemoryFacts facts = GoodFacts();
  facts.segment = absl::PermissionDeniedError("memfd_create: Operation not permitted");
  facts.socket = absl::UnavailableError("a local socket");
  for (const Finding& finding : CheckSharedMemory(facts, "node7")) {
    if (finding.what == "local name") continue;
    EXPECT_EQ(finding.severity, Severity::kWarning);
    EXPECT_NE(finding.remedy.find("gRPC"), std::string::npos);
  }
}

TEST(CheckSharedMemory, AShortSocketBufferIsNamed) {
  SharedMemoryFacts facts = GoodFacts();
  facts.socket = absl::ResourceExhaustedError("the local peer does not read");
  facts.socket_buffer = 100 << 10;
  EXPECT_NE(CheckSharedMemory(facts, "node7")[1].remedy.find("net.core.wmem_max"),
            std::string::npos);
}

// Unix sockets' names have 107 bytes.
TEST(CheckSharedMemory, AHostsNameMayBeTooLongForALocalName) {
  const Findings findings = CheckSharedMemory(GoodFacts(), std::string(90, 'n'));
  EXPECT_EQ(findings[2].what, "local name");
  EXPECT_EQ(findings[2].severity, Severity::kWarning);
  EXPECT_NE(findings[2].remedy.find("numeric address"), std::string::npos);
  EXPECT_EQ(CheckSharedMemory(GoodFacts(), std::string(83, 'n'))[2].severity, Severity::kOk);
  EXPECT_EQ(CheckSharedMemory(GoodFacts(), std::string(84, 'n'))[2].severity, Severity::kWarning);
}

}  // namespace
}  // namespace parley
