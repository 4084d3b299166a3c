#include "client/parley/doctor/addresses_check.h"

#include <gtest/gtest.h>

#include <map>

#include "client/parley/doctor/network_for_test.h"

namespace parley {
namespace {

TEST(CheckListen, IsOkWithAFreePortOfThisMachine) {
  NetworkForTest network;
  for (const char* listen : {"10.0.0.7:0", "node7:0", "127.0.0.1:0", "localhost:5000", "[::1]:0"}) {
    const Findings findings = CheckListen(listen, network);
    ASSERT_EQ(findings.size(), 2u) << listen;
    for (const Finding& finding : findings) {
      EXPECT_EQ(finding.severity, Severity::kOk) << listen << ": " << finding.found;
    }
  }
}

TEST(CheckListen, NamesWhatIsNoAddress) {
  NetworkForTest network;
  for (const char* listen : {"here", ":5", "host:x", "host:65536", ""}) {
    const Findings findings = CheckListen(listen, network);
    ASSERT_EQ(findings.size(), 1u) << listen;
    EXPECT_EQ(findings[0].what, "listen address");
    EXPECT_EQ(findings[0].severity, Severity::kFailure);
    EXPECT_NE(findings[0].remedy.find("--listen=HOST:PORT"), std::string::npos);
  }
}

TEST(CheckListen, ANameWithoutAnAddressFails) {
  NetworkForTest network;
  const Findings findings = CheckListen("nowhere:0", network);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].severity, Severity::kFailure);
  EXPECT_NE(findings[0].found.find("nowhere has no address: unknown name"), std::string::npos);
  EXPECT_NE(findings[0].remedy.find("/etc/hosts"), std::string::npos);
}

TEST(CheckListen, AnotherMachinesAddressFailsAndOwnOnesAreNamed) {
  NetworkForTest network;
  const Findings findings = CheckListen("node8:0", network);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].severity, Severity::kFailure);
  EXPECT_NE(findings[0].found.find("node8 (10.0.0.8) is no address of this machine"),
            std::string::npos);
  // Not loopback, which nobody else could use.
  EXPECT_EQ(findings[0].remedy, "--listen with an address that this machine has: 10.0.0.7");
}

// Debian's /etc/hosts gives a machine's own name such an address.
TEST(CheckListen, TheMachinesNameAtALoopbackAddressFails) {
  NetworkForTest network;
  network.names["node7"] = {"127.0.1.1"};
  const Findings findings = CheckListen("node7:0", network);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].severity, Severity::kFailure);
  EXPECT_NE(findings[0].remedy.find("`127.0.1.1 node7` out of /etc/hosts"), std::string::npos);
}

TEST(CheckListen, APortInUseOrForRootAloneFails) {
  NetworkForTest network;
  network.taken = {6000};
  Findings findings = CheckListen("10.0.0.7:6000", network);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].severity, Severity::kOk);
  EXPECT_EQ(findings[1].what, "listen port");
  EXPECT_EQ(findings[1].severity, Severity::kFailure);
  EXPECT_NE(findings[1].found.find("10.0.0.7 port 6000 is in use"), std::string::npos);
  EXPECT_NE(findings[1].remedy.find("--listen=10.0.0.7:0"), std::string::npos);
  findings = CheckListen("10.0.0.7:80", network);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[1].severity, Severity::kFailure);
  EXPECT_NE(findings[1].remedy.find("ip_unprivileged_port_start"), std::string::npos);
}

TEST(CheckListen, AllAddressesAreAWarning) {
  NetworkForTest network;
  const Findings findings = CheckListen("0.0.0.0:0", network);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  EXPECT_NE(findings[0].remedy.find("--advertise"), std::string::npos);
}

TEST(IsForOthers, AllButLoopback) {
  EXPECT_FALSE(IsForOthers("127.0.0.1:0"));
  EXPECT_FALSE(IsForOthers("localhost:0"));
  EXPECT_FALSE(IsForOthers("[::1]:0"));
  EXPECT_FALSE(IsForOthers("nothing"));
  EXPECT_TRUE(IsForOthers("10.0.0.7:0"));
  EXPECT_TRUE(IsForOthers("node7:0"));
  EXPECT_TRUE(IsForOthers("0.0.0.0:0"));
}

// The real network, with faults that need no rights.
TEST(SystemNetwork, TellsATakenPortAndAnAddressOfNobodyHere) {
  const auto network = SystemNetwork();
  EXPECT_TRUE(network->TryListen("127.0.0.1", 0).ok());
  // TEST-NET-1: nobody's.
  EXPECT_TRUE(absl::IsNotFound(network->TryListen("192.0.2.77", 0)));
  EXPECT_TRUE(network->Resolve("127.0.0.1").ok());
  EXPECT_TRUE(absl::IsUnavailable(network->Connect("127.0.0.1", 1, absl::Seconds(10)).status()));
  const std::vector<std::string> own = network->OwnAddresses();
  EXPECT_NE(std::find(own.begin(), own.end(), "127.0.0.1"), own.end());
}

}  // namespace
}  // namespace parley
