#include "server/pipeline_stage/schedule/check.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/str_replace.h"
#include "server/pipeline_stage/schedule/prediction.h"
#include "server/pipeline_stage/schedule/schedules.h"

namespace parley {
namespace {

constexpr char kGood[] =
    "pipeline of 2 parts, 1 microbatches\n"
    "stage 0: F0.0 A0>1.0 G0<1.0 B0.0 U0.0\n"
    "stage 1: A1<0.0 F1.0 I1.0 G1>0.0 W1.0 U1.0\n";

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<Schedule> schedule = ParseSchedule(text);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  if (!schedule.ok()) return "unread";
  const absl::Status status = CheckSchedule(*schedule, ChainOf(schedule->parts));
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

std::string With(const std::string& from, const std::string& to) {
  EXPECT_NE(std::string(kGood).find(from), std::string::npos) << from;
  return ErrorOf(absl::StrReplaceAll(kGood, {{from, to}}));
}

TEST(CheckSchedule, NamesStageActionAndFault) {
  EXPECT_EQ(ErrorOf(kGood), "");
  EXPECT_EQ(With("F0.0 ", ""), "of 2 forwards the schedule has 1");
  EXPECT_EQ(With("F0.0 ", "F0.0 F0.0 "), "stage 0, F0.0: it is there twice");
  EXPECT_EQ(With(" F0.0 A0>1.0", " A0>1.0 F0.0"), "stage 0, A0>1.0: before its forward");
  EXPECT_EQ(With("F0.0 ", "F2.0 "), "stage 0, F2.0: the pipeline has no such part or microbatch");
  EXPECT_EQ(With("F0.0 ", "F0.1 "), "stage 0, F0.1: the pipeline has no such part or microbatch");
  EXPECT_EQ(With("G0<1.0 B0.0", "B0.0 G0<1.0"), "stage 0, B0.0: before what part 1 gives it");
  EXPECT_EQ(With("A1<0.0 F1.0", "F1.0 A1<0.0"), "stage 1, F1.0: before what part 0 gives it");
  EXPECT_EQ(With(" A0>1.0", ""), "a message is sent or received only: A0>1.0");
  EXPECT_EQ(With(" G1>0.0", ""), "a message is sent or received only: G1>0.0");
  EXPECT_EQ(With(" A0>1.0", " A0>1.0 A0>1.0"), "stage 0, A0>1.0: it is there twice");
  EXPECT_EQ(With(" A0>1.0", " A0>1.0 A0>0.0"),
            "stage 0, A0>0.0: nothing travels between these parts");
  EXPECT_EQ(With(" B0.0", ""), "stage 0, U0.0: before the backward of its microbatch");
  EXPECT_EQ(With(" B0.0 U0.0", ""), "stage 0, F0.0: without a whole backward");
  EXPECT_EQ(With(" W1.0 U1.0", ""), "stage 1, F1.0: without a whole backward");
  EXPECT_EQ(With(" U1.0", ""), "stage 1, F1.0: no update has its gradient");
  EXPECT_EQ(With("I1.0 G1>0.0 W1.0", "W1.0 I1.0 G1>0.0"),
            "stage 1, W1.0: before the input gradient");
  EXPECT_EQ(With(" W1.0", " W1.0 B1.0"),
            "stage 1, B1.0: after another backward of the same microbatch");
  EXPECT_EQ(With("F1.0 I1.0", "I1.0 F1.0"), "stage 1, I1.0: before its forward");
  EXPECT_EQ(With("W1.0", "W1.0 B0.0"), "stage 1, B0.0: its forward is on another stage");
  EXPECT_EQ(ErrorOf("pipeline of 1 parts, 2 microbatches\n"
                    "stage 0: F0.0 F0.1 B0.1 U0.1 B0.0\n"),
            "stage 0, U0.1: before the backward of an earlier microbatch");
  const Schedule good = *ParseSchedule(kGood);
  EXPECT_EQ(CheckSchedule(good, {{1, 0}}).message(), "the model has no edge from part 1 to part 0");
  EXPECT_EQ(CheckSchedule(good, {{0, 2}}).message(), "the model has no edge from part 0 to part 2");
}

// A message that is left out, sent twice or out of order is never mistaken for a whole schedule,
// and one that passes can be played.
TEST(CheckSchedule, WhatItAcceptsCanBePlayedAndNoChangeOfOneActionIsMissed) {
  std::mt19937_64 random(20261123);
  int refused = 0, accepted = 0;
  for (int round = 0; round < 4'000; ++round) {
    const std::vector<ScheduleKind>& kinds = AllSchedules();
    ScheduleSpec spec{kinds[random() % kinds.size()], static_cast<uint32_t>(2 + random() % 3),
                      static_cast<uint32_t>(1 + random() % 6)};
    if (spec.kind == ScheduleKind::kInterleaved) spec.parts_per_stage = 2;
    const Schedule order = *MakeSchedule(spec);
    Schedule broken = WithMessages(order, ChainOf(order.parts));
    std::vector<Action>& actions = broken.stages[random() % spec.stages];
    const size_t at = random() % actions.size();
    switch (random() % 3) {
      case 0:
        actions.erase(actions.begin() + static_cast<int64_t>(at));
        break;
      case 1: {
        const Action copy = actions[at];  // insert may move what it copies
        actions.insert(actions.begin() + static_cast<int64_t>(random() % actions.size()), copy);
        break;
      }
      default:
        std::swap(actions[at], actions[random() % actions.size()]);
    }
    if (broken == WithMessages(order, ChainOf(order.parts))) continue;
    if (!CheckSchedule(broken, ChainOf(order.parts)).ok()) {
      refused += 1;
      continue;
    }
    // Another order of the same actions, or one update less that another one covers.
    accepted += 1;
    PipelineCosts costs;
    costs.parts.resize(order.parts);
    const absl::StatusCode code = Predict(broken, costs).status().code();
    EXPECT_TRUE(code == absl::StatusCode::kOk || code == absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_GT(refused, 1'500);
  EXPECT_GT(accepted, 20);
}

}  // namespace
}  // namespace parley
