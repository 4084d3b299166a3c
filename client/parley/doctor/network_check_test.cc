#include "client/parley/doctor/network_check.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

NetworkFacts GoodFacts() {
  NetworkFacts facts;
  facts.congestion_control = "cubic";
  facts.congestion_controls = "reno cubic bbr";
  facts.receive_buffer = 6 << 20;
  facts.send_buffer = 4 << 20;
  facts.first_port = 32768;
  facts.last_port = 60999;
  facts.waiting_connections = 4096;
  facts.interfaces = NetworkFacts::Interfaces{{"eth0", true, 1500, uint64_t{10'000'000'000}},
                                              {"eth1", false, 9000, {}}};
  return facts;
}

JobNeeds Needs() {
  JobNeeds needs;
  needs.processes = 5;
  needs.peers = 4;
  return needs;
}

Finding OnlyFault(const NetworkFacts& facts, const JobNeeds& needs = Needs()) {
  Findings bad;
  for (const Finding& finding : CheckNetwork(facts, needs)) {
    if (finding.severity != Severity::kOk) bad.push_back(finding);
  }
  EXPECT_EQ(bad.size(), 1u);
  return bad.empty() ? Finding() : bad[0];
}

TEST(CheckNetwork, AnOrdinaryOneIsOk) {
  for (const Finding& finding : CheckNetwork(GoodFacts(), Needs())) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.what << ": " << finding.found;
  }
}

TEST(CheckNetwork, CongestionControlThatHalvesTheThroughputIsAWarning) {
  NetworkFacts facts = GoodFacts();
  facts.congestion_control = "bbr";
  Finding finding = OnlyFault(facts);
  EXPECT_EQ(finding.what, "congestion control");
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_NE(finding.remedy.find("sysctl -w net.ipv4.tcp_congestion_control='cubic'"),
            std::string::npos);
  facts.congestion_controls = "reno bbr";
  EXPECT_NE(OnlyFault(facts).remedy.find("'reno'"), std::string::npos);
  facts.congestion_control = "dctcp";
  EXPECT_EQ(OnlyFault(facts).severity, Severity::kWarning);
}

TEST(CheckNetwork, BuffersMustHoldWhatAFastLinkHasUnderWay) {
  NetworkFacts facts = GoodFacts();
  facts.interfaces->at(0).bits_per_second = uint64_t{100'000'000'000};
  const Finding finding = OnlyFault(facts);
  EXPECT_EQ(finding.what, "TCP buffers");
  EXPECT_NE(finding.found.find("100 Gbit/s has 11.9 MiB under way"), std::string::npos)
      << finding.found;
  EXPECT_NE(finding.remedy.find("net.ipv4.tcp_rmem='4096 131072 25000000'"), std::string::npos);
  EXPECT_NE(finding.remedy.find("net.ipv4.tcp_wmem="), std::string::npos);
  // That of an interface that is down does not count.
  facts.interfaces->at(0).up = false;
  facts.interfaces->push_back({"eth2", true, 1500, {}});
  for (const Finding& each : CheckNetwork(facts, Needs())) EXPECT_EQ(each.severity, Severity::kOk);
}

TEST(CheckNetwork, PortsMustSuffice) {
  NetworkFacts facts = GoodFacts();
  facts.first_port = 60000;
  facts.last_port = 60099;
  EXPECT_EQ(OnlyFault(facts).severity, Severity::kWarning);
  facts.last_port = 60009;
  const Finding finding = OnlyFault(facts);
  EXPECT_EQ(finding.what, "free ports");
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_NE(finding.remedy.find("ip_local_port_range='1024 65535'"), std::string::npos);
}

TEST(CheckNetwork, AQueueThatIsTooShortIsAWarning) {
  NetworkFacts facts = GoodFacts();
  facts.waiting_connections = 128;
  JobNeeds needs = Needs();
  needs.peers = 100;
  const Finding finding = OnlyFault(facts, needs);
  EXPECT_EQ(finding.what, "waiting connections");
  EXPECT_NE(finding.remedy.find("net.core.somaxconn='400'"), std::string::npos);
}

TEST(CheckNetwork, WithoutAnInterfaceAJobStaysOnItsMachine) {
  NetworkFacts facts = GoodFacts();
  facts.interfaces->clear();
  for (const Finding& each : CheckNetwork(facts, Needs())) EXPECT_EQ(each.severity, Severity::kOk);
  JobNeeds needs = Needs();
  needs.all_here = false;
  const Finding finding = OnlyFault(facts, needs);
  EXPECT_EQ(finding.what, "interfaces");
  EXPECT_EQ(finding.severity, Severity::kFailure);
}

TEST(CheckNetwork, WhatTheKernelDoesNotTellIsNoFault) {
  JobNeeds needs = Needs();
  needs.all_here = false;
  for (const Finding& finding : CheckNetwork({}, needs)) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.what << ": " << finding.found;
    EXPECT_NE(finding.found.find("the kernel does not say"), std::string::npos) << finding.found;
  }
}

}  // namespace
}  // namespace parley
