#include "worker/preemption.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

namespace parley {
namespace {

TEST(PreemptionTest, BeforeTheStepsASignalBreaksOffWhateverIsDone) {
  Preemption preemption;
  std::string left;
  preemption.BreakOffBy([&](const std::string& signal) { left += "joining " + signal; });
  preemption.BreakOffBy([&](const std::string& signal) { left += "registering " + signal; });
  preemption.Signal(SIGTERM);
  EXPECT_EQ(left, "registering SIGTERM");
  preemption.Signal(SIGUSR1);
  EXPECT_EQ(left, "registering SIGTERM");  // once
}

TEST(PreemptionTest, ASignalThatCameEarlierCountsAtOnce) {
  Preemption preemption;
  preemption.Signal(SIGUSR1);
  std::string left;
  preemption.BreakOffBy([&](const std::string& signal) { left = signal; });
  EXPECT_EQ(left, "SIGUSR1");
}

TEST(PreemptionTest, DuringTheStepsTheTrainerAsksForIt) {
  Preemption preemption;
  bool left = false;
  preemption.BreakOffBy([&](const std::string&) { left = true; });
  EXPECT_EQ(preemption.AskedBeforeStep(), "");
  preemption.Signal(SIGINT);
  EXPECT_FALSE(left);
  EXPECT_EQ(preemption.AskedBeforeStep(), "SIGINT");
}

TEST(PreemptionTest, DuringTheStepsItIsHeardOfAtOnceTooButBreaksNothingOff) {
  Preemption preemption;
  std::string left, heard;
  preemption.DuringSteps([&](const std::string& signal) { heard += signal; });
  preemption.BreakOffBy([&](const std::string& signal) { left += signal; });
  EXPECT_EQ(preemption.AskedBeforeStep(), "");
  preemption.Signal(SIGINT);
  EXPECT_EQ(heard, "SIGINT");
  preemption.Signal(SIGTERM);
  EXPECT_EQ(heard, "SIGINT");  // once
  EXPECT_EQ(left, "");
  EXPECT_EQ(preemption.AskedBeforeStep(), "SIGINT");
}

TEST(PreemptionTest, OneThatHasJoinedGoesOnAfterSigtermAndTellsOfItOnce) {
  Preemption preemption;
  std::vector<int> told;
  std::string left;
  preemption.BreakOffBy([&](const std::string& signal) { left += signal; });
  preemption.GoOnAfter([&](int signal) { told.push_back(signal); });
  preemption.Signal(SIGTERM);
  preemption.Signal(SIGTERM);
  preemption.Signal(SIGUSR1);
  EXPECT_EQ(told, (std::vector<int>{SIGTERM}));
  EXPECT_EQ(left, "");
  EXPECT_EQ(preemption.AskedBeforeStep(), "") << "it trains on";
}

TEST(PreemptionTest, AfterTheEarlySigusr1ASigtermIsToldToo) {
  Preemption preemption;
  std::vector<int> told;
  preemption.GoOnAfter([&](int signal) { told.push_back(signal); });
  for (const int signal : {SIGUSR1, SIGUSR1, SIGTERM, SIGUSR1, SIGTERM}) preemption.Signal(signal);
  EXPECT_EQ(told, (std::vector<int>{SIGUSR1, SIGTERM}));
  EXPECT_EQ(preemption.AskedBeforeStep(), "") << "it trains on";
}

TEST(PreemptionTest, SigintEndsEvenOneThatGoesOnForACheckpoint) {
  Preemption preemption;
  int told = 0;
  preemption.GoOnAfter([&](int) { ++told; });
  EXPECT_EQ(preemption.AskedBeforeStep(), "");
  preemption.Signal(SIGTERM);
  preemption.Signal(SIGINT);
  EXPECT_EQ(preemption.AskedBeforeStep(), "SIGINT");
  EXPECT_EQ(told, 1);
  preemption.Over();
  preemption.Signal(SIGTERM);
  EXPECT_EQ(told, 1);
}

TEST(PreemptionTest, AfterTheEndNothingIsBrokenOff) {
  Preemption preemption;
  bool left = false;
  preemption.BreakOffBy([&](const std::string&) { left = true; });
  preemption.Over();
  preemption.Signal(SIGTERM);
  EXPECT_FALSE(left);
}

}  // namespace
}  // namespace parley
