#include "client/activity.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

// A clock that a test moves.
class TestRuntime final : public Runtime {
 public:
  absl::Time Now() const override { return now; }
  std::shared_ptr<Timers> MakeTimers() override { return nullptr; }
  bool Await(absl::Mutex&, const absl::Condition&, absl::Time) override { return false; }
  uint64_t DrawIncarnation() override { return 1; }
  int64_t pid() const override { return 1; }

  absl::Time now = absl::FromUnixSeconds(1000);
};

class ActivityTest : public testing::Test {
 protected:
  WaitsReply Told() const {
    WaitsReply reply;
    activity_.Tell(reply);
    return reply;
  }

  const std::shared_ptr<TestRuntime> runtime_ = std::make_shared<TestRuntime>();
  Activity activity_{runtime_};
};

TEST_F(ActivityTest, AWorkerThatComputesWaitsForNobodyWhateverCallsAreOpen) {
  activity_.Decided(6);
  activity_.Work("forward and backward of step 7", 7);
  activity_.CallBegun(SHARD, 1, "pushing to shard 1 at h:1");
  runtime_->now += absl::Seconds(4);
  const WaitsReply told = Told();
  EXPECT_EQ(told.step(), 6u);
  ASSERT_EQ(told.waits_size(), 1);
  EXPECT_EQ(told.waits(0).what(), "forward and backward of step 7");
  EXPECT_EQ(told.waits(0).seconds(), 4);
  EXPECT_EQ(told.waits(0).step(), 7u);
  EXPECT_EQ(told.waits(0).on_size(), 0);
}

TEST_F(ActivityTest, AWorkerThatWaitsNamesEachProcessThatHasNotAnsweredOnce) {
  activity_.Work("forward and backward of step 7", 7);
  const uint64_t answered = activity_.CallBegun(SHARD, 0, "pushing to shard 0 at h:0");
  activity_.CallBegun(SHARD, 1, "pushing to shard 1 at h:1");
  runtime_->now += absl::Seconds(1);
  activity_.CallBegun(SHARD, 1, "pushing to shard 1 at h:1");
  activity_.CallEnded(answered);
  const Activity::Waiting waiting(activity_, "pushing the gradients of step 7",
                                  runtime_->now + absl::Seconds(20));
  runtime_->now += absl::Seconds(5);
  const WaitsReply told = Told();
  ASSERT_EQ(told.waits_size(), 1);
  const Wait& wait = told.waits(0);
  EXPECT_EQ(wait.what(),
            "pushing the gradients of step 7: pushing to shard 1 at h:1, and 1 more calls");
  EXPECT_EQ(wait.seconds(), 6);  // since the older call
  EXPECT_EQ(wait.seconds_left(), 15);
  ASSERT_EQ(wait.on_size(), 1);
  EXPECT_EQ(wait.on(0).role(), SHARD);
  EXPECT_EQ(wait.on(0).ordinal(), 1u);
}

TEST_F(ActivityTest, WhatIsAskedForAheadHoldsUpOnlyWhereNothingElseDoes) {
  activity_.CallBegun(SHARD, 1, "pulling from shard 1 at h:1", /*ahead=*/true);
  const uint64_t completing = activity_.CallBegun(SHARD, 0, "completing a step at shard 0 at h:0");
  const Activity::Waiting waiting(activity_, "waiting", absl::InfiniteFuture());
  ASSERT_EQ(Told().waits_size(), 1);
  EXPECT_EQ(Told().waits(0).what(), "waiting: completing a step at shard 0 at h:0");
  activity_.CallEnded(completing);
  ASSERT_EQ(Told().waits_size(), 1);
  EXPECT_EQ(Told().waits(0).what(), "waiting: pulling from shard 1 at h:1");
}

TEST_F(ActivityTest, AWaitWithoutACallIsForWhatTheCoordinatorTells) {
  const Activity::Waiting waiting(activity_, "waiting for all members to join",
                                  absl::InfiniteFuture());
  runtime_->now += absl::Seconds(2);
  const WaitsReply told = Told();
  ASSERT_EQ(told.waits_size(), 1);
  EXPECT_EQ(told.waits(0).seconds(), 2);
  ASSERT_EQ(told.waits(0).on_size(), 1);
  EXPECT_EQ(told.waits(0).on(0).role(), COORDINATOR);
}

TEST_F(ActivityTest, AfterAWaitTheOneAroundItGoesOnAndThenTheWork) {
  activity_.Work("between steps", 0);
  {
    const Activity::Waiting outer(activity_, "joining the job anew", absl::InfiniteFuture());
    runtime_->now += absl::Seconds(3);
    { const Activity::Waiting inner(activity_, "registering", absl::InfiniteFuture()); }
    EXPECT_EQ(Told().waits(0).what(), "joining the job anew");
    EXPECT_EQ(Told().waits(0).seconds(), 3);
  }
  EXPECT_EQ(Told().waits(0).what(), "between steps");
  EXPECT_EQ(Told().waits(0).seconds(), 0);
}

}  // namespace
}  // namespace parley
