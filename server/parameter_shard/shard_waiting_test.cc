#include <gtest/gtest.h>

#include <string>

#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

TEST(ShardTest, AParkedCallThatIsNotAnsweredNamesWhoIsMissingAndSinceWhen) {
  ShardCluster cluster(SummingJob(), MakeView({.shards = 2, .workers = 2}));
  cluster.PushAll(0, 1, 0, 1);
  auto complete = cluster.Complete(cluster.MakeComplete(0, 1, 0), absl::Seconds(10));
  auto pull = cluster.Pull(0, 0, 1, absl::Seconds(5));
  EXPECT_EQ(cluster.leader().NextDeadline(), cluster.now() + absl::Seconds(5));
  cluster.Advance(absl::Seconds(5));
  EXPECT_FALSE(complete->has_value());
  ASSERT_TRUE(pull->has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded((*pull)->status()));
  cluster.Advance(absl::Seconds(5));
  ASSERT_EQ(CodeOf(complete), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ((*complete)->status().message(),
            "step 1 is not decided: in step 1 attempt 0 worker 1 at 10.0.1.1:1 (pid 0) did not "
            "complete (since 1970-01-12T13:46:40.000Z, 10.0 s)");
}

TEST(ShardTest, TheFirstCauseIsToldToThoseWhoAskAndEverythingElseIsRefused) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}));
  auto parked = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  std::string told;
  WhyFailedRequest ask;
  *ask.mutable_header() = cluster.worker(1);
  FirstCause cause;
  cause.set_text("coordinator at h:1 has not answered");
  {
    Replies replies;
    cluster.leader().WhyFailed(ask, {cluster.now()}, replies,
                               [&](auto reply) { told = reply->cause().text(); });
    cluster.leader().Fail(cause, replies);
  }
  EXPECT_EQ(told, cause.text());
  EXPECT_EQ(CodeOf(parked), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(
      absl::IsUnavailable(cluster.Push(cluster.MakePush(0, 1, 0, 0, {1, 1, 1, 1})).status()));
}

TEST(ShardTest, WhenTheProcessEndsNoCallStaysParked) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}));
  auto complete = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  auto pull = cluster.Pull(0, 0, 1);
  absl::Status told;
  WhyFailedRequest ask;
  *ask.mutable_header() = cluster.worker(1);
  {
    Replies replies;
    cluster.leader().WhyFailed(ask, {cluster.now()}, replies,
                               [&](auto reply) { told = reply.status(); });
    cluster.leader().Stop(replies);
  }
  EXPECT_TRUE(absl::IsUnavailable(told));
  EXPECT_EQ(CodeOf(complete), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::IsUnavailable((*pull)->status()));
  EXPECT_TRUE(absl::IsUnavailable((*cluster.Pull(0, 0, 0))->status()));
}

}  // namespace
}  // namespace parley::testing
