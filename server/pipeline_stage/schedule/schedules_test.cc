#include "server/pipeline_stage/schedule/schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/pipeline_stage/schedule/check.h"
#include "server/pipeline_stage/schedule/longest_path_for_test.h"
#include "server/pipeline_stage/schedule/prediction.h"

namespace parley {
namespace {

constexpr absl::Duration kUnit = absl::Milliseconds(12);  // of time; every number of stages divides

std::string NameOf(const ScheduleSpec& spec) {
  return absl::StrCat(NameOf(spec.kind), ", ", spec.stages, " stages of ", spec.parts_per_stage,
                      ", ", spec.microbatches, " microbatches");
}

// With as few microbatches in an update as there can be.
ScheduleSpec Spec(ScheduleKind kind, uint32_t stages, uint32_t microbatches) {
  ScheduleSpec spec{kind, stages, microbatches};
  if (kind == ScheduleKind::kTwoBufferWeights) spec.accumulate = stages;
  return spec;
}

// Calls `see` for each kind, 1 to 8 stages, 1 to 32 microbatches, and 1 to 3 parts on each stage
// where the kind has such a thing.
void ForEach(const std::function<void(const ScheduleSpec&)>& see) {
  for (ScheduleKind kind : AllSchedules()) {
    const uint32_t most_parts = kind == ScheduleKind::kInterleaved ? 3 : 1;
    for (uint32_t stages = 1; stages <= 8; ++stages) {
      for (uint32_t microbatches = 1; microbatches <= 32; ++microbatches) {
        for (uint32_t parts = 1; parts <= most_parts; ++parts) {
          ScheduleSpec spec = Spec(kind, stages, microbatches);
          spec.parts_per_stage = parts;
          SCOPED_TRACE(NameOf(spec));
          see(spec);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

Schedule Order(const ScheduleSpec& spec) {
  absl::StatusOr<Schedule> schedule = MakeSchedule(spec);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return schedule.ok() ? *std::move(schedule) : Schedule{};
}

Schedule Whole(const ScheduleSpec& spec) {
  const Schedule order = Order(spec);
  return WithMessages(order, ChainOf(order.parts));
}

// Equal stages; times in units, of a whole stage.
PipelineCosts Equal(const ScheduleSpec& spec, int forward, int input_gradient, int weight_gradient,
                    uint32_t credits = kUnlimited) {
  PipelineCosts costs;
  PartCost part;
  part.forward = forward * kUnit / spec.parts_per_stage;
  part.input_gradient = input_gradient * kUnit / spec.parts_per_stage;
  part.weight_gradient = weight_gradient * kUnit / spec.parts_per_stage;
  part.activation_bytes = 1000;
  part.output_bytes = 10;
  costs.parts.assign(size_t{spec.stages} * spec.parts_per_stage, part);
  costs.credits = credits;
  costs.delay = DelayOf(spec);
  return costs;
}

Prediction Played(const Schedule& schedule, const PipelineCosts& costs) {
  absl::StatusOr<Prediction> prediction = Predict(schedule, costs);
  EXPECT_TRUE(prediction.ok()) << prediction.status();
  return prediction.ok() ? *std::move(prediction) : Prediction{};
}

Prediction Played(ScheduleKind kind, uint32_t stages, uint32_t microbatches, double hop = 0) {
  const ScheduleSpec spec = Spec(kind, stages, microbatches);
  PipelineCosts costs = Equal(spec, 1, 1, 1);
  costs.hop = hop * kUnit;
  return Played(Whole(spec), costs);
}

TEST(Schedules, EachDoesAllWorkOfItsModelInAnOrderThatCanBe) {
  ForEach([](const ScheduleSpec& spec) {
    const Schedule whole = Whole(spec);
    EXPECT_EQ(CheckSchedule(whole, ChainOf(whole.parts)), absl::OkStatus());
  });
}

TEST(Schedules, NoneTakesLongerWithTheCreditsThatItNeedsThanWithAnyNumber) {
  ForEach([](const ScheduleSpec& spec) {
    const Schedule whole = Whole(spec);
    for (int backward : {1, 2}) {
      const PipelineCosts costs = Equal(spec, 1, 1, backward - 1, CreditsNeeded(spec));
      const PipelineCosts unlimited = Equal(spec, 1, 1, backward - 1);
      EXPECT_EQ(Played(whole, costs).makespan, Played(whole, unlimited).makespan);
    }
  });
}

TEST(Schedules, WithoutACreditOnlyThoseThatGoOneWayAtATimeDoNotStandStill) {
  for (ScheduleKind kind : AllSchedules()) {
    ScheduleSpec spec = Spec(kind, 4, 8);
    if (kind == ScheduleKind::kInterleaved) spec.parts_per_stage = 2;
    const absl::StatusOr<Prediction> played = Predict(Whole(spec), Equal(spec, 1, 1, 1, 0));
    EXPECT_EQ(played.ok(), kind == ScheduleKind::kGpipe) << NameOf(kind);
    if (played.ok()) continue;
    EXPECT_EQ(played.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(played.status().message().find("stage 0 in A0>1."), std::string::npos)
        << played.status();
  }
}

TEST(Schedules, EachTakesAsLongAsTheLongestPathThroughIt) {
  ForEach([](const ScheduleSpec& spec) {
    const Schedule order = Order(spec);
    const Schedule whole = WithMessages(order, ChainOf(order.parts));
    PipelineCosts costs = Equal(spec, 2, 3, 2);
    // Stages that are not equal, on links that take their time.
    for (size_t part = 0; part < costs.parts.size(); ++part) {
      costs.parts[part].forward += static_cast<int>(part % 3) * kUnit / 4;
    }
    for (absl::Duration hop : {absl::ZeroDuration(), kUnit / 2}) {
      costs.hop = hop;
      LongestPath path(order, costs);
      const absl::Duration makespan = Played(whole, costs).makespan;
      EXPECT_EQ(makespan, path.Run(/*with_order=*/true));
      EXPECT_GE(makespan, path.Run(/*with_order=*/false));
    }
  });
}

// The activations that a stage keeps, in those of its parts; -1: nothing is promised.
int PeakOf(const ScheduleSpec& spec, uint32_t stage) {
  const int d = static_cast<int>(spec.stages), n = static_cast<int>(spec.microbatches);
  const int s = static_cast<int>(stage), v = static_cast<int>(spec.parts_per_stage);
  switch (spec.kind) {
    case ScheduleKind::kGpipe:
      return n;
    case ScheduleKind::kEagerOneFOneB:
      return std::min(2 * (d - 1 - s) + 1, n);
    case ScheduleKind::kInterleaved:
      if (v == 1) return std::min(d - s, n);
      // D + (D - 1) / v of whole stages.
      return s == 0 && n % d == 0 ? std::min(d * v + d - 1, v * n) : -1;
    case ScheduleKind::kZeroBubble:
      return std::min(d, n);
    case ScheduleKind::kChimera:
      return -1;  // a bound, below
    default:
      return std::min(d - s, n);
  }
}

TEST(Schedules, EachKeepsAsManyActivationsAsItSays) {
  ForEach([](const ScheduleSpec& spec) {
    const Prediction played = Played(Whole(spec), Equal(spec, 1, 1, 1));
    for (uint32_t stage = 0; stage < spec.stages; ++stage) {
      const uint32_t peak = played.stages[stage].peak_activations;
      const int want = PeakOf(spec, stage);
      if (want >= 0) {
        EXPECT_EQ(peak, want) << "stage " << stage;
      }
      if (spec.kind != ScheduleKind::kChimera) continue;
      EXPECT_LE(peak, spec.stages) << "stage " << stage;
      if (spec.stages == spec.microbatches && spec.stages % 2 == 0) {
        const uint32_t from_end = std::min(stage, spec.stages - 1 - stage);
        EXPECT_EQ(peak, spec.stages / 2 + 1 + from_end) << "stage " << stage;
      }
    }
  });
}

// What a synchronous step takes, in units, where a formula is known for it; else 0.
absl::Duration Formula(const ScheduleSpec& spec, int f, int i, int w) {
  const int d = static_cast<int>(spec.stages), n = static_cast<int>(spec.microbatches);
  const int b = i + w;
  switch (spec.kind) {
    case ScheduleKind::kGpipe:
    case ScheduleKind::kOneFOneB:
    case ScheduleKind::kEagerOneFOneB:
      return (n + d - 1) * (f + b) * kUnit;
    case ScheduleKind::kInterleaved: {
      const int v = static_cast<int>(spec.parts_per_stage);
      if (v > 1 && n % d != 0) return absl::ZeroDuration();
      return (v * n + d - 1) * ((f + b) * kUnit / v);
    }
    case ScheduleKind::kZeroBubble:
      if (n < d || w > i) return absl::ZeroDuration();
      // The paper's (D - 1) * (F + I - W) supposes that F >= W: with as few activations as 1F1B
      // keeps, the first stage has D forwards to do until its first gradient is there, and no
      // weight gradient.
      return (n * (f + b) + (d - 1) * (i + std::max(f - w, 0))) * kUnit;
    case ScheduleKind::kChimera:
      if (d % 2 != 0 || n != d || (b != f && b != 2 * f)) return absl::ZeroDuration();
      return (n * (f + b) + (d - 2) * b) * kUnit;
    default:
      return absl::ZeroDuration();
  }
}

TEST(Schedules, EqualStagesTakeAsLongAsTheFormulaSaysWhereItHolds) {
  const int costs[][3] = {{1, 1, 0}, {1, 1, 1}, {2, 3, 1}, {1, 3, 2}, {4, 1, 1}, {3, 2, 2}};
  int held = 0;
  ForEach([&](const ScheduleSpec& spec) {
    const Schedule whole = Whole(spec);
    for (const auto& [f, i, w] : costs) {
      const absl::Duration want = Formula(spec, f, i, w);
      if (want == absl::ZeroDuration()) continue;
      const Prediction played = Played(whole, Equal(spec, f, i, w));
      EXPECT_EQ(played.makespan, want) << f << " " << i << " " << w;
      EXPECT_NEAR(played.bubble,
                  1 - absl::FDivDuration(spec.microbatches * (f + i + w) * kUnit, want), 1e-12);
      held += 1;
    }
  });
  EXPECT_GT(held, 7'000);
}

TEST(Schedules, OnAnEvenNumberOfStagesChimeraIsNeverLongerThanOneFOneB) {
  for (uint32_t stages = 2; stages <= 8; stages += 2) {
    for (uint32_t n = 1; n <= 32; ++n) {
      EXPECT_LE(Played(ScheduleKind::kChimera, stages, n).makespan,
                Played(ScheduleKind::kOneFOneB, stages, n).makespan)
          << stages << " stages, " << n;
    }
  }
}

// The figures of the field, and those that our users were given.
TEST(Schedules, LatencyAndZeroBubbleAreAsMeasuredElsewhere) {
  EXPECT_NEAR(Played(ScheduleKind::kOneFOneB, 4, 16, 0.25).bubble, 0.250, 5e-4);
  EXPECT_NEAR(Played(ScheduleKind::kGpipe, 4, 16, 0.25).bubble, 0.179, 5e-4);
  EXPECT_NEAR(Played(ScheduleKind::kEagerOneFOneB, 4, 16, 0.25).bubble, 0.179, 5e-4);
  EXPECT_NEAR(Played(ScheduleKind::kOneFOneB, 4, 16, 0.5).bubble, 0.324, 5e-4);
  EXPECT_NEAR(Played(ScheduleKind::kGpipe, 4, 16, 0.5).bubble, 0.200, 5e-4);
  const auto ratio = [](uint32_t n) {
    return absl::FDivDuration(Played(ScheduleKind::kOneFOneB, 4, n).makespan,
                              Played(ScheduleKind::kZeroBubble, 4, n).makespan);
  };
  EXPECT_DOUBLE_EQ(ratio(16), 57.0 / 51);
  EXPECT_DOUBLE_EQ(ratio(8), 33.0 / 27);
}

TEST(Schedules, OneSlowStageOfOneFOneBCostsItsOwnTimeOnly) {
  for (uint32_t slow = 0; slow < 4; ++slow) {
    for (uint32_t n : {1, 3, 4, 9, 32}) {
      const ScheduleSpec spec{ScheduleKind::kOneFOneB, 4, n};
      PipelineCosts costs = Equal(spec, 1, 1, 1, 1);
      costs.parts[slow].forward *= 2.5;
      costs.parts[slow].weight_gradient *= 3;
      const absl::Duration slowest = costs.parts[slow].forward + costs.parts[slow].input_gradient +
                                     costs.parts[slow].weight_gradient;
      EXPECT_LE(Played(Whole(spec), costs).makespan, n * slowest + 3 * 3 * kUnit);
    }
  }
}

TEST(Schedules, TheAsynchronousOnesHaveNoBubbleInBetween) {
  constexpr uint32_t kMicrobatches = 64;
  for (ScheduleKind kind : {ScheduleKind::kPipeDream, ScheduleKind::kTwoBufferWeights}) {
    for (uint32_t stages = 1; stages <= 8; ++stages) {
      const ScheduleSpec spec = Spec(kind, stages, kMicrobatches);
      const Prediction played = Played(Whole(spec), Equal(spec, 1, 1, 1));
      for (const StagePrediction& stage : played.stages) {
        absl::Duration busy, begin = absl::InfiniteDuration(), end;
        for (const TimedAction& one : stage.timeline) {
          if (one.action.microbatch < 2 * stages ||
              one.action.microbatch >= kMicrobatches - 2 * stages) {
            continue;
          }
          begin = std::min(begin, one.begin);
          end = std::max(end, one.end);
        }
        for (const TimedAction& one : stage.timeline) {
          if (one.begin >= begin && one.end <= end) busy += one.end - one.begin;
        }
        EXPECT_LE(1 - absl::FDivDuration(busy, end - begin), 0.02) << stages << " stages";
      }
    }
  }
}

// Where the weights are as old as that, no forward waits for them (ForEach has compared the
// makespan with that of a pipeline that needs none); where they were newer, it would.
TEST(Schedules, YoungerWeightsWouldHoldTheAsynchronousOnesUp) {
  for (uint32_t stages = 2; stages <= 8; ++stages) {
    const ScheduleSpec pipedream{ScheduleKind::kPipeDream, stages, 64};
    PipelineCosts costs = Equal(pipedream, 1, 1, 1);
    costs.delay = stages - 2;
    EXPECT_THAT(Predict(Whole(pipedream), costs).status().message(),
                testing::HasSubstr("the stages wait for each other for ever"));
    ScheduleSpec two{ScheduleKind::kTwoBufferWeights, stages, 64};
    for (two.accumulate = 1; two.accumulate <= stages; ++two.accumulate) {
      const absl::StatusOr<Prediction> played = Predict(Whole(two), Equal(two, 1, 1, 1));
      // common/job/cluster_check.cc has that bound.
      EXPECT_TRUE(played.ok() || two.accumulate < stages) << played.status();
      EXPECT_TRUE(!played.ok() || 2 * two.accumulate >= stages) << two.accumulate;
    }
  }
}

TEST(Schedules, AnUpdateComesBehindEveryGradientThatItHas) {
  const auto updates = [](const ScheduleSpec& spec) {
    std::string text;
    const Schedule order = Order(spec);
    for (const Action& action : order.stages[0]) {
      if (action.kind == ActionKind::kUpdate) absl::StrAppend(&text, ToText(action), " ");
    }
    return text;
  };
  EXPECT_EQ(updates({ScheduleKind::kOneFOneB, 2, 3}), "U0.2 ");
  EXPECT_EQ(updates({ScheduleKind::kInterleaved, 2, 2, 2}), "U0.1 U2.1 ");
  EXPECT_EQ(updates({ScheduleKind::kChimera, 2, 2}), "U0.0 U1.1 ");
  EXPECT_EQ(updates({ScheduleKind::kPipeDream, 2, 3}), "U0.0 U0.1 U0.2 ");
  ScheduleSpec spec{ScheduleKind::kTwoBufferWeights, 2, 5};
  spec.accumulate = 2;
  EXPECT_EQ(updates(spec), "U0.1 U0.3 U0.4 ");
}

// With as many credits as it leaves out parts, since so many microbatches are on their other way.
TEST(Schedules, ASkipOverStagesIsOneMoreMessage) {
  for (ScheduleKind kind : AllSchedules()) {
    const ScheduleSpec spec = Spec(kind, 4, 9);
    const Schedule order = Order(spec);
    std::vector<PartEdge> edges = ChainOf(4);
    edges.push_back({0, 3});
    edges.push_back({1, 3});
    const Schedule whole = WithMessages(order, edges);
    EXPECT_EQ(CheckSchedule(whole, edges), absl::OkStatus()) << NameOf(kind);
    EXPECT_EQ(Played(whole, Equal(spec, 1, 1, 1, 4)).makespan,
              Played(WithMessages(order, ChainOf(4)), Equal(spec, 1, 1, 1)).makespan)
        << NameOf(kind);
  }
}

TEST(Schedules, MemoryIsThatOfActivationsAndOfMessagesOnTheirWay) {
  const ScheduleSpec spec{ScheduleKind::kOneFOneB, 3, 8};
  const Prediction played = Played(Whole(spec), Equal(spec, 1, 1, 1, 2));
  EXPECT_EQ(played.stages[0].peak_bytes, 3 * 1000 + 2 * 10);      // gradients of part 0's output
  EXPECT_EQ(played.stages[1].peak_bytes, 2 * 1000 + 2 * 2 * 10);  // and activations of part 0
  EXPECT_EQ(played.stages[2].peak_bytes, 1 * 1000 + 2 * 10);
}

TEST(Schedules, WhatCannotBeIsRefused) {
  const auto code = [](ScheduleSpec spec) { return MakeSchedule(spec).status().code(); };
  EXPECT_EQ(code({ScheduleKind::kGpipe, 0, 1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({ScheduleKind::kGpipe, 1, 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({ScheduleKind::kInterleaved, 1, 1, 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({ScheduleKind::kGpipe, 2, 2, 2}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({ScheduleKind::kGpipe, UINT32_MAX, UINT32_MAX}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({ScheduleKind::kChimera, 64, 1 << 13}), absl::StatusCode::kOk);
  const ScheduleSpec spec{ScheduleKind::kGpipe, 2, 2};
  PipelineCosts costs = Equal(spec, 1, 1, 1);
  costs.parts.pop_back();
  EXPECT_EQ(Predict(Whole(spec), costs).status().code(), absl::StatusCode::kInvalidArgument);
  costs = Equal(spec, 1, 1, -1);
  EXPECT_EQ(Predict(Whole(spec), costs).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace parley
