#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/clock/steady_now.h"
#include "tests/contract/contract_test.h"

namespace parley {
namespace {

// The shards' own contract, by calls that a Session does not make.
class ShardContract : public ContractTest {
 protected:
  // As worker `ordinal` would call.
  static CallHeader HeaderOf(LocalCluster& cluster, uint32_t ordinal) {
    CallHeader header;
    header.set_job("contract");
    header.set_job_epoch(1);
    header.set_view_epoch(1);
    const GetStatusReply job = cluster.Status();
    for (const MemberStatus& status : job.members()) {
      if (status.member().role() != WORKER || status.member().ordinal() != ordinal) continue;
      header.set_member(status.member().id());
      header.set_incarnation(status.member().incarnation());
    }
    return header;
  }

  static ClusterView ViewOf(LocalCluster& cluster, uint32_t ordinal) {
    WatchRequest request;
    *request.mutable_header() = HeaderOf(cluster, ordinal);
    auto client = cluster.transport().connector().ConnectCoordinator(cluster.coordinator_address());
    auto state = WaitFor<SharedJobState>([&](auto done) {
      client->Watch(request, SteadyNow() + absl::Seconds(10), std::move(done));
    });
    EXPECT_TRUE(state.ok()) << state.status();
    return state.ok() ? (*state)->view() : ClusterView();
  }

  // A push of worker `ordinal` for `slice` in step 1, with `value` in each element.
  static absl::StatusOr<PushReply> PushSlice(LocalCluster& cluster, uint32_t ordinal,
                                             const Slice& slice, float value) {
    const std::vector<float> values(slice.end() - slice.begin(), value);
    PushRequest request;
    *request.mutable_header() = HeaderOf(cluster, ordinal);
    request.set_step(1);
    request.set_contributor(ordinal);
    SliceData* data = request.add_slices();
    data->set_slice(slice.id());
    data->set_dtype(F32);
    data->set_data(values.data(), values.size() * sizeof(float));
    auto client =
        cluster.transport().connector().ConnectShard(cluster.shard_address(slice.shard()));
    return WaitFor<PushReply>([&](auto done) {
      client->Push(request, SteadyNow() + absl::Seconds(10), std::move(done));
    });
  }

  static void PullSlice(LocalCluster& cluster, uint32_t ordinal, const Slice& slice,
                        uint64_t version, absl::Duration patience, Done<PullReply> done) {
    PullRequest request;
    *request.mutable_header() = HeaderOf(cluster, ordinal);
    request.set_version(version);
    request.add_slices(slice.id());
    cluster.transport()
        .connector()
        .ConnectShard(cluster.shard_address(slice.shard()))
        ->Pull(request, SteadyNow() + patience, std::move(done));
  }

  // The slice at the start of a tensor of Model().
  static Slice FirstSliceOf(const ClusterView& view, const std::string& tensor) {
    for (const Slice& slice : view.slices()) {
      if (view.tensors(slice.tensor()).name() == tensor && slice.begin() == 0) return slice;
    }
    return Slice();
  }
};
PARLEY_OVER_ALL_TRANSPORTS(ShardContract);

constexpr char kSum[] = "steps: 100 consistency { sync { reduction: SUM } }";

TEST_P(ShardContract, ARepeatedPushIsADuplicateAndCountsOnce) {
  auto cluster = MakeCluster(1, 2, kSum);
  cluster->RunWorkers(1, [&](Session& session) {
    StartTraining(session, 4000);
    const Slice slice = FirstSliceOf(ViewOf(*cluster, 0), "scale");
    for (const PushOutcome outcome : {ADDED, DUPLICATE, DUPLICATE}) {
      const auto reply = PushSlice(*cluster, 0, slice, 2);
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_EQ(reply->outcomes(0), outcome);
    }
    // The session's own push of the same identity is one more repetition.
    ASSERT_TRUE(session.NextStep().has_value());
    As<float>(session.gradient(1))[0] = 100;
    ASSERT_TRUE(session.Push(1).ok());
    ASSERT_TRUE(session.Complete(0).ok());
    ASSERT_TRUE(session.Pull().ok());
    EXPECT_EQ(As<float>(session.parameter(1))[0], -2);
    const auto late = PushSlice(*cluster, 0, slice, 2);
    ASSERT_TRUE(late.ok()) << late.status();
    EXPECT_EQ(late->outcomes(0), STALE);
  });
}

TEST_P(ShardContract, AParkedPullIsAnsweredByTheVerdict) {
  auto cluster = MakeCluster(2, 2, kSum);
  cluster->RunWorkers(2, [&](Session& session) {
    StartTraining(session, 4000);
    ASSERT_TRUE(session.NextStep().has_value());
    const Slice slice = FirstSliceOf(ViewOf(*cluster, session.ordinal()), "scale");
    absl::Notification answered;
    PullSlice(*cluster, session.ordinal(), slice, 1, absl::Seconds(30),
              [&](const absl::StatusOr<PullReply>& reply) {
                EXPECT_TRUE(reply.ok()) << reply.status();
                if (reply.ok()) {
                  EXPECT_EQ(reply->version(), 1);
                }
                answered.Notify();
              });
    EXPECT_FALSE(answered.HasBeenNotified() && session.ordinal() == 1);
    ASSERT_TRUE(session.Complete(0).ok());
    answered.WaitForNotification();
  });
}

TEST_P(ShardContract, APullThatWaitsInVainNamesWhoIsMissing) {
  auto cluster = MakeCluster(2, 2, kSum);
  absl::Notification asked;
  cluster->RunWorkers(2, [&](Session& session) {
    StartTraining(session, 4000);
    ASSERT_TRUE(session.NextStep().has_value());
    if (session.ordinal() == 1) {
      asked.WaitForNotification();
      ASSERT_TRUE(session.Complete(0).ok());
      return;
    }
    const ClusterView view = ViewOf(*cluster, 0);
    Slice slice;
    for (const Slice& each : view.slices()) {
      if (each.shard() == view.step_leader()) slice = each;
    }
    const auto reply = WaitFor<PullReply>(
        [&](auto done) { PullSlice(*cluster, 0, slice, 1, absl::Seconds(1), std::move(done)); });
    asked.Notify();
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kDeadlineExceeded) << reply.status();
    EXPECT_NE(reply.status().message().find("worker 1 at 127.0.0.1:6000"), absl::string_view::npos)
        << reply.status();
    ASSERT_TRUE(session.Complete(0).ok());
  });
}

TEST_P(ShardContract, ARetryVerdictMakesTheOthersSendAgain) {
  auto cluster = MakeCluster(2, 2, kSum);
  absl::Notification over;
  cluster->RunWorkers(2, [&](Session& session) {
    StartTraining(session, 4000);
    ASSERT_TRUE(session.NextStep().has_value());
    if (session.ordinal() == 1) {
      // Half of a contribution, and then a view that takes its contributor out.
      ClusterView view = ViewOf(*cluster, 1);
      const auto pushed = PushSlice(*cluster, 1, FirstSliceOf(view, "big"), 1000);
      EXPECT_TRUE(pushed.ok()) << pushed.status();
      view.set_view_epoch(2);
      view.set_first_step(1);
      view.mutable_contributors()->RemoveLast();
      for (uint32_t shard : {0, 1}) {
        const absl::Status set = cluster->shard(shard).shard().SetView(view, SteadyNow());
        EXPECT_TRUE(set.ok()) << set;
      }
      over.WaitForNotification();
      return;
    }
    for (size_t tensor : {0, 1}) {
      for (float& gradient : As<float>(session.gradient(tensor))) gradient = 3;
      ASSERT_TRUE(session.Push(tensor).ok());
    }
    const auto verdict = session.Complete(0);
    over.Notify();
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    EXPECT_EQ(verdict->outcome(), Verdict::APPLY);
    EXPECT_GE(verdict->attempt(), 1);
    ASSERT_EQ(verdict->shares_size(), 1);
    const absl::Status pulled = session.Pull();
    ASSERT_TRUE(pulled.ok()) << pulled;
    for (size_t tensor : {0, 1}) {
      for (float value : As<float>(session.parameter(tensor))) ASSERT_EQ(value, -3);
    }
  });
}

}  // namespace
}  // namespace parley
