#include "server/pipeline_stage/schedule/schedule.h"

#include <gtest/gtest.h>

#include <string>

#include "server/pipeline_stage/schedule/schedules.h"

namespace parley {
namespace {

TEST(ScheduleText, IsShortAndReadable) {
  const absl::StatusOr<Schedule> order = MakeSchedule({ScheduleKind::kZeroBubble, 2, 2});
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_EQ(ToText(WithMessages(*order, ChainOf(2))),
            "pipeline of 2 parts, 2 microbatches\n"
            "stage 0: F0.0 A0>1.0 F0.1 A0>1.1 G0<1.0 I0.0 W0.0 G0<1.1 I0.1 W0.1 U0.1\n"
            "stage 1: A1<0.0 F1.0 I1.0 G1>0.0 A1<0.1 F1.1 I1.1 G1>0.1 W1.0 W1.1 U1.1\n");
}

TEST(ScheduleText, IsReadBackAsItWas) {
  for (ScheduleKind kind : AllSchedules()) {
    ScheduleSpec spec{kind, 3, 14};
    if (kind == ScheduleKind::kInterleaved) spec.parts_per_stage = 4;
    const absl::StatusOr<Schedule> order = MakeSchedule(spec);
    ASSERT_TRUE(order.ok()) << order.status();
    const Schedule whole = WithMessages(*order, ChainOf(order->parts));
    const absl::StatusOr<Schedule> back = ParseSchedule(ToText(whole));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, whole) << NameOf(kind);
  }
}

TEST(ScheduleText, WhatIsNoneIsNamed) {
  const auto error = [](const std::string& text) {
    const absl::StatusOr<Schedule> schedule = ParseSchedule(text);
    EXPECT_EQ(schedule.status().code(), absl::StatusCode::kInvalidArgument) << text;
    return std::string(schedule.status().message());
  };
  const std::string head = "pipeline of 1 parts, 1 microbatches\n";
  EXPECT_EQ(error(""), "line 1: not `pipeline of N parts, N microbatches`: ");
  EXPECT_EQ(
      error("pipeline of x parts, 1 microbatches\n"),
      "line 1: not `pipeline of N parts, N microbatches`: pipeline of x parts, 1 microbatches");
  EXPECT_EQ(error(head + "stage 1: F0.0"), "line 2: does not begin with `stage 0:`");
  for (const std::string word : {"F", "F0", "F.0", "F0.", "X0.0", "F0.-1", "F0>1.0", "A0.0",
                                 "A0>.0", "A>1.0", "A0.0>1", "G0<1", ">.", "F0.99999999999"}) {
    EXPECT_EQ(error(head + "stage 0: F0.0 " + word), "line 2: not an action: " + word);
  }
}

}  // namespace
}  // namespace parley
