#include "client/newest_state.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

namespace parley {
namespace {

constexpr uint64_t kJobEpoch = 3;
constexpr uint32_t kContributor = 5;
constexpr uint64_t kComposition = 7;

SharedJobState StateWith(const std::function<void(WatchReply&)>& change = [](WatchReply&) {}) {
  auto state = std::make_shared<WatchReply>();
  state->set_phase(TRAINING);
  state->mutable_view()->set_job_epoch(kJobEpoch);
  state->mutable_view()->add_contributors()->set_ordinal(kContributor - 1);
  Contributor& own = *state->mutable_view()->add_contributors();
  own.set_ordinal(kContributor);
  own.set_attempt(kComposition);
  own.add_part_members(21);
  own.add_part_members(22);
  change(*state);
  return state;
}

Contributor& Own(WatchReply& state) { return *state.mutable_view()->mutable_contributors(1); }

TEST(NewestState, TheLastOneHeardIsTakenOnce) {
  NewestState newest;
  const SharedJobState first = StateWith();
  const SharedJobState second = StateWith();
  EXPECT_TRUE(newest.Hear(first));
  EXPECT_FALSE(newest.Hear(second)) << "the first has yet to be taken";
  EXPECT_EQ(newest.Take(), second);
  EXPECT_EQ(newest.Take(), nullptr);
  EXPECT_TRUE(newest.Hear(first));
}

TEST(NewestState, ACompositionStandsUntilAnotherOneIsHeardOf) {
  const auto stands_after = [](const SharedJobState& state) {
    NewestState newest;
    newest.Hear(StateWith());
    (void)newest.Take();
    newest.Hear(state);
    return newest.Stands(kJobEpoch, kContributor, kComposition);
  };
  EXPECT_TRUE(stands_after(StateWith()));
  EXPECT_TRUE(stands_after(StateWith([](WatchReply& state) { state.clear_view(); })));
  EXPECT_TRUE(stands_after(StateWith([](WatchReply& state) { state.set_phase(SAVING); })));
  EXPECT_FALSE(stands_after(StateWith([](WatchReply& s) { Own(s).set_attempt(8); })));
  EXPECT_FALSE(stands_after(StateWith([](WatchReply& s) { Own(s).set_part_members(1, 0); })));
  EXPECT_FALSE(stands_after(StateWith([](WatchReply& s) { s.mutable_view()->set_job_epoch(4); })));
  EXPECT_FALSE(stands_after(StateWith([](WatchReply& state) { state.set_phase(FINISHED); })));
  EXPECT_FALSE(stands_after(
      StateWith([](WatchReply& state) { state.mutable_view()->clear_contributors(); })));
}

TEST(NewestState, ACompositionEndsWithTheJobAndStandsBeforeAnythingIsHeard) {
  NewestState newest;
  EXPECT_TRUE(newest.Stands(kJobEpoch, kContributor, kComposition));
  newest.Hear(StateWith());
  newest.End();
  EXPECT_FALSE(newest.Stands(kJobEpoch, kContributor, kComposition));
}

}  // namespace
}  // namespace parley
