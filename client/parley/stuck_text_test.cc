#include "client/parley/stuck_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/parley/stuck_job.h"

namespace parley {
namespace {

GetStatusReply Status() {
  GetStatusReply status;
  status.set_job("digits");
  for (const auto& [role, ordinal] : {std::pair(SHARD, 0), std::pair(WORKER, 0)}) {
    MemberStatus* member = status.add_members();
    member->mutable_member()->set_role(role);
    member->mutable_member()->set_ordinal(ordinal);
    member->mutable_member()->set_address(role == SHARD ? "h:1" : "h:2");
    member->mutable_member()->set_pid(role == SHARD ? 11 : 12);
    member->set_seconds_since_heartbeat(role == SHARD ? 8.25 : 0.5);
  }
  return status;
}

// The shard is silent, and the worker waits for it.
StuckReport Report() {
  StuckReport report;
  report.job = "digits";
  report.longer_than = absl::Seconds(2);
  report.now = absl::FromUnixSeconds(1'795'230'010);
  const std::vector<Askable> askables = AskablesOf("h:0", Status());
  report.processes.push_back(Asked(askables[0], WaitsReply()));
  report.processes.push_back(
      Asked(askables[1], absl::DeadlineExceededError("h:1: Deadline Exceeded")));
  WaitsReply worker;
  worker.set_step(31);
  Wait* wait = worker.add_waits();
  wait->set_what("pushing the gradients of step 32");
  wait->set_seconds(9);
  wait->set_step(32);
  wait->add_on()->set_role(SHARD);
  report.processes.push_back(Asked(askables[2], worker));
  report.causes = FindRootCauses(report.processes, report.longer_than);
  return report;
}

TEST(StuckText, EndsInTheRootCause) {
  const std::string text = StuckText(Report());
  const std::string last = text.substr(text.rfind('\n', text.size() - 2) + 1);
  EXPECT_EQ(last,
            "root cause: shard 0 at h:1 (pid 11) does not answer (h:1: Deadline Exceeded); the "
            "coordinator heard of it 8.2 s ago; waits for it: worker-0\n");
  for (const char* words : {"WHO", "coordinator", "waits for nothing", "does not answer: h:1",
                            "pushing the gradients of step 32", "03:00:01.0Z", "9.0 s"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " is not in\n" << text;
  }
}

TEST(StuckText, SaysSoWhereNothingIsStuck) {
  StuckReport report = Report();
  report.processes.resize(1);
  report.causes = FindRootCauses(report.processes, report.longer_than);
  const std::string text = StuckText(report);
  EXPECT_NE(text.find("root cause: none: nothing waits for longer than 2s"), std::string::npos);
}

TEST(StuckText, OfAJobThatHasEndedItTellsTheEnd) {
  StuckReport report;
  report.ended = "the job has failed: worker 1 is gone";
  EXPECT_EQ(StuckText(report), "root cause: the job has failed: worker 1 is gone\n");
}

TEST(StuckJson, HasTheGraphAndTheCauses) {
  const auto json = nlohmann::json::parse(StuckJson(Report()), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["processes"].size(), 3u);
  EXPECT_EQ(json["processes"][1]["answers"], false);
  EXPECT_EQ(json["processes"][2]["waits"][0]["on"][0], "shard-0");
  EXPECT_EQ(json["causes"][0]["kind"], "silent");
  EXPECT_EQ(json["causes"][0]["who"][0], "shard-0");
}

TEST(StuckJob, ReadsWhereTheMembersAreFromTargets) {
  const auto askables = AskablesOfTargets(R"([
    {"targets": ["h:90"], "labels": {"job": "digits"}},
    {"targets": ["h:91"], "labels": {"job": "digits", "__parley_role": "SHARD",
                                     "__parley_ordinal": "1", "__parley_address": "h:1"}},
    {"targets": ["h:92"], "labels": {"__parley_role": "COOK", "__parley_ordinal": "1"}},
    7])");
  ASSERT_TRUE(askables.ok()) << askables.status();
  ASSERT_EQ(askables->size(), 1u);
  EXPECT_EQ((*askables)[0].place, Place(SHARD, 1));
  EXPECT_EQ((*askables)[0].address, "h:1");
  EXPECT_TRUE(absl::IsInvalidArgument(AskablesOfTargets("{").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(AskablesOfTargets("{}").status()));
}

TEST(StuckJob, AMemberWithoutAServerOrWithoutTheQuestionIsNotSilent) {
  Askable askable;
  EXPECT_EQ(Asked(askable, absl::NotFoundError("")).answer, AskedProcess::Answer::kCannot);
  askable.address = "h:1";
  EXPECT_EQ(Asked(askable, absl::UnimplementedError("")).answer, AskedProcess::Answer::kCannot);
  EXPECT_EQ(Asked(askable, absl::UnavailableError("")).answer, AskedProcess::Answer::kSilent);
}

}  // namespace
}  // namespace parley
