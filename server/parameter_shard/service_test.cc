// The service over real gRPC on loopback.
#include "server/parameter_shard/service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "client/grpc_connector.h"
#include "common/clock/steady_now.h"
#include "common/rpc/server.h"
#include "server/parameter_shard/in_process.h"
#include "server/parameter_shard/locked_shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

// Makes a call and waits for it.
template <class Reply, class Call>
absl::StatusOr<Reply> Wait(Call call) {
  absl::Notification done;
  absl::StatusOr<Reply> result;
  call([&](absl::StatusOr<Reply> reply) {
    result = std::move(reply);
    done.Notify();
  });
  done.WaitForNotification();
  return result;
}

enum class Way { kGrpc, kInProcess };

class ServiceTest : public ::testing::TestWithParam<Way> {
 protected:
  ServiceTest()
      : view_(MakeView({.tensors = {{"big", 5000}, {"small", 3}}, .workers = 2})),
        shard_(SummingJob(), {}),
        service_(&shard_) {
    auto server = RpcServer::Start("127.0.0.1:0", {&service_}, nullptr);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    connector_ = MakeGrpcConnector();
    client_ = GetParam() == Way::kGrpc
                  ? connector_->ConnectShard(server_->address())
                  : MakeInProcessShardClient(&shard_, [] { return SteadyNow(); });
  }
  ~ServiceTest() override {
    client_.reset();
    connector_.reset();
    server_->Shutdown(absl::ZeroDuration());
  }

  void Start() {
    shard_.Start(0);
    ASSERT_EQ(shard_.SetView(view_, SteadyNow()), absl::OkStatus());
    InitializeRequest request;
    *request.mutable_header() = HeaderOf(view_, 1);
    for (uint32_t slice : {0u, 1u}) {
      SliceData& data = *request.add_slices();
      data.set_slice(slice);
      data.set_dtype(F32);
      std::vector<float> values(slice == 0 ? 5000 : 3);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
      data.set_data(BytesOf(values));
    }
    auto reply =
        Wait<InitializeReply>([&](auto done) { client_->Initialize(request, Soon(), done); });
    ASSERT_EQ(reply.status(), absl::OkStatus());
  }

  static absl::Time Soon() { return SteadyNow() + absl::Seconds(30); }

  PullRequest MakePull(uint64_t version) {
    PullRequest request;
    *request.mutable_header() = HeaderOf(view_, 1);
    request.set_version(version);
    request.add_slices(1);
    request.add_slices(0);
    return request;
  }

  ClusterView view_;
  LockedShard shard_;
  ShardService service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<Connector> connector_;
  std::shared_ptr<ShardClient> client_;
};

TEST_P(ServiceTest, BeforeItHasJoinedCallersAreToTryAgain) {
  auto reply = Wait<PullReply>([&](auto done) { client_->Pull(MakePull(0), Soon(), done); });
  EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
}

TEST_P(ServiceTest, AStepGoesThrough) {
  Start();
  absl::Notification pulled;
  absl::StatusOr<PullReply> version1;
  client_->Pull(MakePull(1), Soon(), [&](absl::StatusOr<PullReply> reply) {
    version1 = std::move(reply);
    pulled.Notify();
  });
  absl::Notification decided;
  for (uint32_t worker : {0u, 1u}) {
    PushRequest push;
    *push.mutable_header() = HeaderOf(view_, 1 + worker);
    push.set_step(1);
    push.set_contributor(worker);
    for (uint32_t slice : {0u, 1u}) {
      SliceData& data = *push.add_slices();
      data.set_slice(slice);
      data.set_dtype(F32);
      data.set_data(BytesOf(std::vector<float>(slice == 0 ? 5000 : 3, 1.5f)));
    }
    auto reply = Wait<PushReply>([&](auto done) { client_->Push(push, Soon(), done); });
    ASSERT_EQ(reply.status(), absl::OkStatus());
    EXPECT_EQ(reply->outcomes_size(), 2);
    CompleteRequest complete;
    *complete.mutable_header() = HeaderOf(view_, 1 + worker);
    complete.set_step(1);
    complete.mutable_share()->set_contributor(worker);
    complete.mutable_share()->set_weight(1);
    client_->Complete(complete, Soon(), [&, worker](absl::StatusOr<CompleteReply> verdict) {
      EXPECT_EQ(verdict.status(), absl::OkStatus());
      if (worker == 1) decided.Notify();
    });
  }
  decided.WaitForNotification();
  pulled.WaitForNotification();
  ASSERT_EQ(version1.status(), absl::OkStatus());
  EXPECT_EQ(version1->version(), 1u);
  ASSERT_EQ(version1->slices_size(), 2);
  EXPECT_EQ(version1->slices(0).slice(), 1u);
  EXPECT_EQ(version1->slices(0).dtype(), F32);
  EXPECT_EQ(FloatsOf(version1->slices(0).data()), std::vector<float>({-3, -2, -1}));
  EXPECT_EQ(FloatsOf(version1->slices(1).data())[4999], 4999 - 3);
}

TEST_P(ServiceTest, EnterSaysWhereTheJobIs) {
  Start();
  EnterRequest request;
  *request.mutable_header() = HeaderOf(view_, 2);
  request.set_contributor(1);
  auto reply = Wait<EnterReply>([&](auto done) { client_->Enter(request, Soon(), done); });
  ASSERT_EQ(reply.status(), absl::OkStatus());
  EXPECT_EQ(reply->step(), 1u);
  EXPECT_EQ(reply->view_epoch(), 1u);
  EXPECT_EQ(reply->contributors_size(), 2);
  request.set_contributor(0);
  reply = Wait<EnterReply>([&](auto done) { client_->Enter(request, Soon(), done); });
  EXPECT_TRUE(absl::IsInvalidArgument(reply.status())) << reply.status();
}

TEST_P(ServiceTest, StatusesKeepCodeAndMessage) {
  Start();
  PullRequest pull = MakePull(0);
  pull.mutable_header()->set_incarnation(99);
  auto reply = Wait<PullReply>([&](auto done) { client_->Pull(pull, Soon(), done); });
  EXPECT_TRUE(absl::IsAborted(reply.status())) << reply.status();
  EXPECT_NE(std::string(reply.status().message()).find("another incarnation of worker-0"),
            std::string::npos)
      << reply.status();
}

TEST_P(ServiceTest, AParkedPullLearnsWhoIsMissing) {
  Start();
  std::optional<absl::StatusOr<PullReply>> result;
  absl::Notification done;
  const absl::Time deadline = SteadyNow() + absl::Seconds(2);
  client_->Pull(MakePull(1), deadline, [&](absl::StatusOr<PullReply> reply) {
    result = std::move(reply);
    done.Notify();
  });
  // As the process's timer does; in virtual time the deadline is already over.
  while (!done.WaitForNotificationWithTimeout(absl::Milliseconds(5))) {
    shard_.Tick(SteadyNow() + absl::Seconds(2));
  }
  EXPECT_TRUE(absl::IsDeadlineExceeded(result->status()));
  EXPECT_NE(std::string(result->status().message()).find("worker 1 at"), std::string::npos)
      << result->status();
}

// A process has as few as two threads for all of gRPC, its heartbeats too: a shard that is busy for
// longer than `liveness` would else pass for dead.
TEST_P(ServiceTest, WhileTheShardIsBusyGrpcGoesOn) {
  if (GetParam() != Way::kGrpc) GTEST_SKIP() << "nothing between the caller and the shard";
  Start();
  absl::Notification held;
  absl::Notification release;
  std::thread busy([&] {
    shard_.Read([&](const Shard*) {
      held.Notify();
      release.WaitForNotification();
      return 0;
    });
  });
  held.WaitForNotification();
  constexpr int kPulls = 64;
  std::atomic<int> pulled = 0;
  absl::Notification all;
  for (int i = 0; i < kPulls; ++i) {
    client_->Pull(MakePull(0), Soon(), [&](const absl::StatusOr<PullReply>& reply) {
      EXPECT_EQ(reply.status(), absl::OkStatus());
      if (++pulled == kPulls) all.Notify();
    });
  }
  // Another service of the same process.
  LockedShard other(SummingJob(), {});
  ShardService other_service(&other);
  auto other_server = RpcServer::Start("127.0.0.1:0", {&other_service}, nullptr);
  ASSERT_TRUE(other_server.ok()) << other_server.status();
  const auto other_client = connector_->ConnectShard((*other_server)->address());
  EnterRequest enter;
  absl::Notification answered;
  absl::Status status;
  other_client->Enter(enter, Soon(), [&](const absl::StatusOr<EnterReply>& reply) {
    status = reply.status();
    answered.Notify();
  });
  EXPECT_TRUE(answered.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_EQ(pulled, 0);
  release.Notify();
  busy.join();
  answered.WaitForNotification();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  all.WaitForNotification();
  (*other_server)->Shutdown(absl::ZeroDuration());
}

INSTANTIATE_TEST_SUITE_P(Ways, ServiceTest, ::testing::Values(Way::kGrpc, Way::kInProcess),
                         [](const auto& info) {
                           return info.param == Way::kGrpc ? "Grpc" : "InProcess";
                         });

}  // namespace
}  // namespace parley::testing
