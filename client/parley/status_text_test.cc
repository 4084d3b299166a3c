#include "client/parley/status_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace parley {
namespace {

GetStatusReply Status() {
  GetStatusReply status;
  status.set_job("small");
  status.set_phase(TRAINING);
  status.set_step(0);
  status.set_expected_members(2);
  MemberStatus* member = status.add_members();
  member->mutable_member()->set_role(WORKER);
  member->mutable_member()->set_ordinal(0);
  member->mutable_member()->set_address("127.0.0.1:4567");
  member->mutable_member()->set_pid(123);
  member->set_seconds_since_heartbeat(1.25);
  return status;
}

TEST(StatusJson, HasEveryFieldUnderItsOwnName) {
  const auto json = nlohmann::json::parse(StatusJson(Status()), nullptr, false);
  ASSERT_TRUE(json.is_object());
  // What scripts and the process tests read.
  EXPECT_EQ(json["step"], "0");
  EXPECT_EQ(json["phase"], "TRAINING");
  EXPECT_EQ(json["total_steps"], "0");
  EXPECT_EQ(json["members"][0]["member"]["pid"], "123");
  EXPECT_EQ(json["members"][0]["seconds_since_heartbeat"], 1.25);
}

TEST(StatusText, HasARowForEachMember) {
  const std::string text = StatusText(Status());
  for (const char* words :
       {"small", "training", "1 of 2", "worker-0", "127.0.0.1:4567", "123", "1.2 s ago"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " is not in\n" << text;
  }
}

TEST(StatusText, TellsHowManyWorkersAreWantedAndNotThere) {
  GetStatusReply status = Status();
  status.set_wanted_workers(3);
  EXPECT_NE(StatusText(status).find("workers: 3, 2 of them not here\n"), std::string::npos);
  *status.add_members() = status.members(0);
  status.mutable_members(1)->set_drained(true);
  EXPECT_NE(StatusText(status).find("workers: 3, 2 of them not here\n"), std::string::npos)
      << "who was told to go is none of them";
  status.set_wanted_workers(1);
  EXPECT_NE(StatusText(status).find("workers: 1\n"), std::string::npos);
  status.set_wanted_workers(3);
  status.add_phase_seconds()->set_phase("forward");
  EXPECT_NE(StatusText(status).find("workers: 3\n"), std::string::npos) << "all steps are done";
}

TEST(StatusText, TellsTheMachineOfAMemberWithoutAnAddress) {
  GetStatusReply status = Status();
  status.mutable_members(0)->mutable_member()->clear_address();
  status.mutable_members(0)->mutable_member()->set_host("node7");
  EXPECT_NE(StatusText(status).find("worker-0     node7  "), std::string::npos);
}

// Two workers and a shard, in bounded or async.
GetStatusReply ClockedStatus() {
  GetStatusReply status = Status();
  status.mutable_members(0)->set_step(40);
  status.mutable_members(0)->set_staleness(0);
  *status.add_members() = status.members(0);
  status.mutable_members(1)->mutable_member()->set_ordinal(1);
  status.mutable_members(1)->set_staleness(17);
  *status.add_members() = status.members(0);
  status.mutable_members(2)->mutable_member()->set_role(SHARD);
  status.mutable_members(2)->clear_staleness();
  return status;
}

TEST(StatusText, TellsHowStaleEachWorkerIs) {
  const std::string text = StatusText(ClockedStatus());
  for (const char* words : {"STEP STALENESS  HEARD OF\n", " 40         0  1.2 s ago\n",
                            " 40        17  1.2 s ago\n", " 40         -  1.2 s ago\n"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " is not in\n" << text;
  }
}

TEST(StatusText, HasNoStalenessWhereNobodyIsStale) {
  EXPECT_EQ(StatusText(Status()).find("STALENESS"), std::string::npos);
}

TEST(StatusJson, HasTheStalenessOfWorkersThatHaveOne) {
  const auto json = nlohmann::json::parse(StatusJson(ClockedStatus()), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["members"][0]["staleness"], "0");
  EXPECT_EQ(json["members"][1]["staleness"], "17");
  EXPECT_FALSE(json["members"][2].contains("staleness"));
}

TEST(StatusText, TellsTheFirstCause) {
  GetStatusReply status = Status();
  status.set_phase(FAILED);
  status.mutable_cause()->set_text("worker 1 at 127.0.0.1:1 (pid 3): it is gone");
  EXPECT_NE(StatusText(status).find("worker 1 at 127.0.0.1:1 (pid 3): it is gone\n"),
            std::string::npos);
}

}  // namespace
}  // namespace parley
