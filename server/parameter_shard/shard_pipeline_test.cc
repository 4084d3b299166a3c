// Contributors that are pipelines: a worker that sends no slice but says what data the step has,
// and stages that each send what they have of the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "server/parameter_shard/pipeline_views_for_test.h"
#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kWorkers = 2;

// What one member of a pipeline does in a step.
class Pipelines : public ::testing::TestWithParam<uint32_t> {
 protected:
  explicit Pipelines(bool start = true)
      : cluster_(PipelineJob(), PipelineView(GetParam(), kWorkers), start) {}

  CallHeader HeaderOfPart(uint32_t contributor, uint32_t part) {
    const Contributor& found = cluster_.view().contributors(static_cast<int>(contributor));
    return HeaderOf(cluster_.view(), found.part_members(static_cast<int>(part)));
  }

  // With which a step is begun now.
  uint64_t CompositionOf(uint32_t contributor) {
    return cluster_.view().contributors(static_cast<int>(contributor)).attempt();
  }

  absl::StatusOr<PushReply> Push(uint32_t contributor, uint32_t part, uint64_t step,
                                 uint32_t attempt, uint32_t slice, float value) {
    PushRequest push = cluster_.MakePush(contributor, step, attempt, slice, Floats(2, value));
    *push.mutable_header() = HeaderOfPart(contributor, part);
    push.set_part(part);
    push.set_composition(CompositionOf(contributor));
    return cluster_.Push(push);
  }

  // To all slices that it has a part of.
  void PushAll(uint32_t contributor, uint32_t part, uint64_t step, uint32_t attempt, float value) {
    for (uint32_t slice = 0; slice < kPartsOfSlice.size(); ++slice) {
      for (const uint32_t number : kPartsOfSlice[slice]) {
        if (number != part) continue;
        ASSERT_EQ(OutcomeOf(Push(contributor, part, step, attempt, slice, value)), ADDED);
      }
    }
  }

  ShardCluster::CompleteResult Complete(uint32_t contributor, uint32_t part, uint64_t step,
                                        uint32_t attempt, double weight = 0) {
    CompleteRequest complete = cluster_.MakeComplete(contributor, step, attempt, weight);
    *complete.mutable_header() = HeaderOfPart(contributor, part);
    complete.set_part(part);
    complete.set_composition(CompositionOf(contributor));
    return cluster_.Complete(complete);
  }

  // Each stage pushes 10 * (1 + contributor) + part.
  void DoStages(uint32_t contributor, uint64_t step, uint32_t attempt) {
    for (uint32_t part = 1; part <= kStages; ++part) {
      PushAll(contributor, part, step, attempt, 10.f * (1 + contributor) + part);
      Complete(contributor, part, step, attempt);
    }
  }

  // After one step of all from zero, of the weights 1 and 0.5.
  void ExpectTheStep(uint64_t version) {
    EXPECT_EQ(cluster_.Values("first", version), Floats(2, -(11.f + 21) / 1.5f));
    EXPECT_EQ(cluster_.Values("last", version), Floats(2, -(12.f + 22) / 1.5f));
    EXPECT_EQ(cluster_.Values("tied", version), Floats(2, -(11.f + 12 + 21 + 22) / 1.5f));
    EXPECT_EQ(cluster_.Values("seen", version), Floats(2, 11));
  }

  ShardCluster cluster_;
};

TEST_P(Pipelines, AStepIsTheSumOfTheStagesPartsWithTheWeightOfTheirWorker) {
  Complete(0, 0, 1, 0, 1);
  DoStages(0, 1, 0);
  DoStages(1, 1, 0);
  EXPECT_EQ(cluster_.leader().version(), 0u) << "a worker has not said what data it has used";
  auto last = Complete(1, 0, 1, 0, 0.5);
  cluster_.Deliver();
  EXPECT_EQ(VerdictOf(last).outcome(), Verdict::APPLY);
  EXPECT_EQ(VerdictOf(last).total_weight(), 1.5);
  ExpectTheStep(1);
}

TEST_P(Pipelines, AStageHasNoPartInWhatOthersHave) {
  const auto wrong = Push(0, 2, 1, 0, 3, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(wrong.status())) << wrong.status();
  EXPECT_THAT(std::string(wrong.status().message()),
              HasSubstr("part 2 of contributor 0 has no share in seen"));
  EXPECT_TRUE(absl::IsInvalidArgument(Push(0, 0, 1, 0, 0, 1).status())) << "nor has the worker";
}

TEST_P(Pipelines, AStageThatIsReplacedHalfWayMakesTheStepBeginAgain) {
  auto worker = Complete(0, 0, 1, 0, 1);
  DoStages(1, 1, 0);
  auto other = Complete(1, 0, 1, 0, 0.5);
  PushAll(0, 2, 1, 0, 100);
  auto lost = Complete(0, 2, 1, 0);
  EXPECT_FALSE(worker->has_value());

  const CallHeader old = HeaderOfPart(0, 2);
  const uint64_t former = CompositionOf(0);
  cluster_.SetView(WithPart(cluster_.view(), 0, 2, 0));
  cluster_.Deliver();
  // What they have computed with the lost one does not belong to what comes.
  EXPECT_TRUE(absl::IsAborted((*worker)->status()));
  EXPECT_TRUE(absl::IsAborted((*lost)->status()));
  EXPECT_EQ(VerdictOf(other).outcome(), Verdict::RETRY);
  EXPECT_EQ(cluster_.leader().attempt(), 1u);
  for (const uint32_t attempt : {0, 1}) {
    CompleteRequest again = cluster_.MakeComplete(0, 1, attempt, 1);
    *again.mutable_header() = HeaderOfPart(0, 0);
    again.set_composition(former);
    const auto answer = cluster_.Complete(again);
    ASSERT_TRUE(answer->has_value());
    EXPECT_TRUE(absl::IsAborted((*answer)->status())) << (*answer)->status();
  }
  PushRequest push = cluster_.MakePush(0, 1, 1, 0, Floats(2, 100));
  *push.mutable_header() = HeaderOfPart(0, 1);
  push.set_part(1);
  push.set_composition(former);
  EXPECT_TRUE(absl::IsAborted(cluster_.Push(push).status()));
  push.set_attempt(0);
  EXPECT_EQ(OutcomeOf(cluster_.Push(push)), STALE) << "of an attempt that is over";

  // The other pipeline begins again at once.
  DoStages(1, 1, 1);
  auto last = Complete(1, 0, 1, 1, 0.5);
  cluster_.Deliver();
  EXPECT_FALSE(last->has_value()) << "the place is waited for";
  PushRequest late = cluster_.MakePush(0, 1, 1, 1, Floats(2, 100));
  *late.mutable_header() = old;
  late.set_part(2);
  EXPECT_TRUE(absl::IsAborted(cluster_.Push(late).status()));

  cluster_.SetView(WithPart(cluster_.view(), 0, 2, 90));
  cluster_.Deliver();
  EXPECT_EQ(cluster_.leader().attempt(), 1u) << "it finds nothing of its predecessor";
  auto entered = cluster_.Enter(HeaderOf(cluster_.view(), 90), 0);
  ASSERT_TRUE(entered->has_value() && (*entered)->ok());
  EXPECT_EQ((*entered)->value().attempt(), 1u);
  Complete(0, 0, 1, 1, 1);
  DoStages(0, 1, 1);
  cluster_.Deliver();
  EXPECT_EQ(VerdictOf(last).outcome(), Verdict::APPLY);
  ExpectTheStep(1);
}

TEST_P(Pipelines, AStageWhosePlaceIsTakenAtOnceMakesTheStepBeginAgain) {
  PushAll(0, 2, 1, 0, 100);
  auto worker = Complete(0, 0, 1, 0, 1);
  // Nobody has seen the view between.
  cluster_.SetView(WithPart(cluster_.view(), 0, 2, 90));
  cluster_.Deliver();
  EXPECT_TRUE(absl::IsAborted((*worker)->status()));
  Complete(0, 0, 1, 1, 1);
  Complete(1, 0, 1, 1, 0.5);
  for (const uint32_t contributor : {0, 1}) DoStages(contributor, 1, 1);
  cluster_.Deliver();
  ExpectTheStep(1);
}

TEST_P(Pipelines, AStageThatIsLostAfterItsPipelineIsCompleteCountsInTheStep) {
  DoStages(0, 1, 0);
  Complete(0, 0, 1, 0, 1);
  cluster_.SetView(WithPart(cluster_.view(), 0, 1, 0));
  cluster_.SetView(WithPart(cluster_.view(), 0, 1, 90));
  DoStages(1, 1, 0);
  auto last = Complete(1, 0, 1, 0, 0.5);
  cluster_.Deliver();
  EXPECT_EQ(VerdictOf(last).outcome(), Verdict::APPLY);
  ExpectTheStep(1);
  // Its successor takes part in the next one.
  for (const uint32_t contributor : {0, 1}) {
    DoStages(contributor, 2, 0);
    last = Complete(contributor, 0, 2, 0, 1);
  }
  cluster_.Deliver();
  EXPECT_EQ(VerdictOf(last).outcome(), Verdict::APPLY);
}

TEST_P(Pipelines, WhoIsMissingIsNamedByItsPlace) {
  const auto waited_for = [&] {
    std::vector<std::pair<Role, uint32_t>> places;
    for (const Wait& wait : cluster_.leader().Waits(cluster_.now())) {
      for (const WaitedFor& on : wait.on()) places.emplace_back(on.role(), on.ordinal());
    }
    return places;
  };
  cluster_.SetView(WithPart(cluster_.view(), 1, 2, 0));
  cluster_.Deliver();
  const uint32_t attempt = cluster_.leader().attempt();
  DoStages(0, 1, attempt);
  EXPECT_EQ(waited_for(), (std::vector<std::pair<Role, uint32_t>>{
                              {WORKER, 0}, {WORKER, 1}, {STAGE, 2}, {STAGE, 3}}));
  auto parked = Complete(0, 0, 1, attempt, 1);
  cluster_.Advance(absl::Hours(2));
  EXPECT_THAT(std::string((*parked)->status().message()),
              HasSubstr("part 2 of contributor 1 (nobody has its place), stage 2 at 10.0.2.1:1"));
}

INSTANTIATE_TEST_SUITE_P(Shards, Pipelines, ::testing::Values(1, 2));

// Before there are values.
class PipelinesAtTheStart : public Pipelines {
 protected:
  PipelinesAtTheStart() : Pipelines(/*start=*/false) {}

  absl::Status Initialize(uint32_t contributor, uint32_t part, uint32_t slice, float value) {
    InitializeRequest request;
    *request.mutable_header() = HeaderOfPart(contributor, part);
    SliceData& data = *request.add_slices();
    data.set_slice(slice);
    data.set_dtype(F32);
    data.set_data(BytesOf(Floats(2, value)));
    Replies replies;
    return cluster_.shard(cluster_.view().slices(static_cast<int>(slice)).shard())
        .Initialize(request, cluster_.now(), replies)
        .status();
  }
};

TEST_P(PipelinesAtTheStart, EachStageOfContributor0GivesTheValuesOfWhatItHasFirst) {
  const auto waited_for = [&] {
    std::vector<std::pair<Role, uint32_t>> places;
    for (const Wait& wait : cluster_.leader().Waits(cluster_.now())) {
      for (const WaitedFor& on : wait.on()) places.emplace_back(on.role(), on.ordinal());
    }
    return places;
  };
  EXPECT_EQ(waited_for(), (std::vector<std::pair<Role, uint32_t>>{{STAGE, 0}, {STAGE, 1}}));
  EXPECT_TRUE(absl::IsInvalidArgument(Initialize(1, 1, 0, 7)));
  EXPECT_EQ(Initialize(0, 2, 1, 2), absl::OkStatus());
  EXPECT_EQ(waited_for(), (std::vector<std::pair<Role, uint32_t>>{{STAGE, 0}}));
  // It is lost before it has given all of its own.
  EXPECT_EQ(Initialize(0, 1, 0, 1), absl::OkStatus());
  cluster_.SetView(WithPart(cluster_.view(), 0, 1, 0));
  EXPECT_EQ(waited_for(), (std::vector<std::pair<Role, uint32_t>>{{STAGE, 0}}));
  cluster_.SetView(WithPart(cluster_.view(), 0, 1, 90));
  for (const uint32_t slice : {0, 2, 3}) {
    EXPECT_EQ(Initialize(0, 1, slice, 1.f + slice), absl::OkStatus());
  }
  for (uint32_t shard = 0; shard < cluster_.size(); ++shard) {
    EXPECT_TRUE(cluster_.shard(shard).ready());
  }
  EXPECT_EQ(cluster_.Values("first", 0), Floats(2, 1));
  EXPECT_EQ(cluster_.Values("last", 0), Floats(2, 2));
  EXPECT_EQ(cluster_.Values("tied", 0), Floats(2, 3));
}

INSTANTIATE_TEST_SUITE_P(Shards, PipelinesAtTheStart, ::testing::Values(1));

}  // namespace
}  // namespace parley::testing
