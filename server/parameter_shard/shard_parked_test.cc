#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

// 16 Completes, Enters and WhyFaileds, and Pulls: 16 and two for the one slice.
constexpr size_t kMostOfOneMember = 16 + 16 + 16 + 18;

TEST(ShardParked, APeerThatCallsWithoutEndGrowsNothingAndHoldsUpNobody) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    std::mt19937_64 random(seed);
    ShardCluster cluster(SummingJob(), MakeView({.workers = 2}));
    cluster.PushAll(1, 1, 0, 1);
    size_t refused = 0;
    size_t answered = 0;
    for (int call = 0; call < 5000; ++call) {
      const auto count = [&](const absl::Status& status) {
        ++answered;
        if (absl::IsResourceExhausted(status)) ++refused;
      };
      Replies replies;
      const CallTime time{cluster.now(), cluster.now() + absl::Hours(1)};
      switch (random() % 4) {
        case 0:
          cluster.leader().Complete(cluster.MakeComplete(1, 1, 0), time, replies,
                                    [count](auto reply) { count(reply.status()); });
          break;
        case 1: {
          PullRequest pull;
          *pull.mutable_header() = cluster.worker(1);
          pull.set_version(1 + random() % 3);
          pull.add_slices(0);
          cluster.leader().Pull(pull, time, replies,
                                [count](auto reply) { count(reply.status()); });
          break;
        }
        case 2: {
          WhyFailedRequest why;
          *why.mutable_header() = cluster.worker(1);
          cluster.leader().WhyFailed(why, time, replies,
                                     [count](auto reply) { count(reply.status()); });
          break;
        }
        default: {
          // Of a contributor that has completed: it takes part in the next step.
          EnterRequest enter;
          *enter.mutable_header() = cluster.worker(1);
          enter.set_contributor(1);
          cluster.leader().Enter(enter, time, replies,
                                 [count](auto reply) { count(reply.status()); });
        }
      }
      ASSERT_LE(cluster.leader().parked(), kMostOfOneMember);
    }
    EXPECT_GT(refused, 3000u);
    EXPECT_GT(cluster.leader().parked(), 0u);
    // The other worker has room, and the step goes on.
    cluster.PushAll(0, 1, 0, 1);
    auto complete = cluster.Complete(cluster.MakeComplete(0, 1, 0));
    ASSERT_TRUE(complete->has_value());
    EXPECT_EQ(VerdictOf(complete).outcome(), Verdict::APPLY);
    // Nobody is forgotten: what is parked still is answered in the end.
    cluster.Advance(absl::Hours(2));
    EXPECT_EQ(answered, 5000u);
    EXPECT_EQ(cluster.leader().parked(), 0u);
  }
}

TEST(ShardParked, ListsThatAreLongerThanTheModelAreRefused) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}));
  CompleteRequest complete = cluster.MakeComplete(0, 1, 0);
  for (int i = 0; i < 2; ++i) complete.add_none(0);
  EXPECT_EQ(CodeOf(cluster.Complete(complete)), absl::StatusCode::kInvalidArgument);
  complete = cluster.MakeComplete(0, 1, 0);
  for (int i = 0; i < 65537; ++i) complete.mutable_share()->add_ranges();
  EXPECT_EQ(CodeOf(cluster.Complete(complete)), absl::StatusCode::kInvalidArgument);

  PullRequest pull;
  *pull.mutable_header() = cluster.worker(0);
  for (int i = 0; i < 2; ++i) pull.add_slices(0);
  absl::Status told;
  {
    Replies replies;
    cluster.leader().Pull(pull, {cluster.now()}, replies,
                          [&](auto reply) { told = reply.status(); });
  }
  EXPECT_TRUE(absl::IsInvalidArgument(told));
}

}  // namespace
}  // namespace parley::testing
