#include "client/grpc_connector.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/clock/steady_now.h"
#include "common/rpc/reply.h"
#include "common/rpc/server.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/parameter_shard.grpc.pb.h"

namespace parley {
namespace {

// Answers a heartbeat by its progress: 0 OK, else with that status code. A Watch stays open until
// its caller goes.
class Peer final : public Coordinator::CallbackService {
 public:
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const HeartbeatRequest* request,
                                      HeartbeatReply* reply) override {
    auto* reactor = context->DefaultReactor();
    const auto code = static_cast<absl::StatusCode>(request->progress());
    if (code == absl::StatusCode::kOk) {
      Answer(reactor, reply)(HeartbeatReply());
    } else {
      Answer(reactor, reply)(absl::Status(code, "as asked"));
    }
    return reactor;
  }

  grpc::ServerUnaryReactor* Watch(grpc::CallbackServerContext*, const WatchRequest*,
                                  WatchReply*) override {
    class Parked final : public grpc::ServerUnaryReactor {
      void OnCancel() override { Finish(grpc::Status(grpc::StatusCode::CANCELLED, "")); }
      void OnDone() override { delete this; }
    };
    return new Parked;
  }
};

class Echo final : public ParameterShard::CallbackService {
 public:
  grpc::ServerUnaryReactor* Pull(grpc::CallbackServerContext* context, const PullRequest* request,
                                 PullReply* reply) override {
    for (uint32_t slice : request->slices()) {
      reply->add_slices()->mutable_data()->assign(slice, 'x');
    }
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class GrpcConnectorTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = RpcServer::Start("127.0.0.1:0", {&peer_, &echo_}, nullptr);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  absl::Status Heartbeat(CoordinatorClient& client, uint64_t progress) {
    HeartbeatRequest request;
    request.set_progress(progress);
    absl::Notification answered;
    absl::Status status;
    client.Heartbeat(request, SteadyNow() + absl::Seconds(10),
                     [&](absl::StatusOr<HeartbeatReply> reply) {
                       status = reply.status();
                       answered.Notify();
                     });
    answered.WaitForNotification();
    return status;
  }

  Peer peer_;
  Echo echo_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<Connector> connector_ = MakeGrpcConnector();
};

TEST_F(GrpcConnectorTest, EachStatusCodeComesThroughAndNamesThePeer) {
  auto client = connector_->ConnectCoordinator(server_->address());
  EXPECT_TRUE(Heartbeat(*client, 0).ok());
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status = Heartbeat(*client, code);
    EXPECT_EQ(static_cast<int>(status.code()), code);
    EXPECT_NE(status.message().find(server_->address()), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("as asked"), absl::string_view::npos) << status;
  }
}

TEST_F(GrpcConnectorTest, WhereNobodyListensTheCallIsUnavailableAndNamesTheAddress) {
  auto client = connector_->ConnectCoordinator("127.0.0.1:1");
  const absl::Status status = Heartbeat(*client, 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("127.0.0.1:1"), absl::string_view::npos) << status;
}

TEST_F(GrpcConnectorTest, ACallEndsAtItsDeadline) {
  auto client = connector_->ConnectCoordinator(server_->address());
  absl::Notification answered;
  client->Watch({}, SteadyNow() + absl::Milliseconds(50),
                [&](const absl::StatusOr<SharedJobState>& reply) {
                  EXPECT_EQ(reply.status().code(), absl::StatusCode::kDeadlineExceeded);
                  answered.Notify();
                });
  EXPECT_TRUE(answered.WaitForNotificationWithTimeout(absl::Seconds(10)));
}

TEST_F(GrpcConnectorTest, LargeMessagesPass) {
  auto client = connector_->ConnectShard(server_->address());
  PullRequest request;
  request.add_slices(40 << 20);
  absl::Notification answered;
  client->Pull(request, SteadyNow() + absl::Seconds(30), [&](absl::StatusOr<PullReply> reply) {
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (reply.ok()) {
      EXPECT_EQ(reply->slices(0).data().size(), 40u << 20);
    }
    answered.Notify();
  });
  EXPECT_TRUE(answered.WaitForNotificationWithTimeout(absl::Seconds(40)));
}

// A worker that joins anew a hundred times has no more connections than before.
TEST_F(GrpcConnectorTest, WhoAsksAgainGetsTheSameConnection) {
  const auto connector = MakeGrpcConnector(/*direct=*/false);
  const auto shard = connector->ConnectShard("127.0.0.1:1");
  const auto coordinator = connector->ConnectCoordinator("127.0.0.1:1");
  EXPECT_EQ(connector->ConnectShard("127.0.0.1:1"), shard);
  EXPECT_EQ(connector->ConnectCoordinator("127.0.0.1:1"), coordinator);
  EXPECT_NE(connector->ConnectShard("127.0.0.1:2"), shard);
}

TEST_F(GrpcConnectorTest, ItsEndEndsWhatIsOpen) {
  auto client = connector_->ConnectCoordinator(server_->address());
  absl::Mutex mu;
  std::optional<absl::Status> status;
  client->Watch({}, SteadyNow() + absl::Hours(1), [&](const absl::StatusOr<SharedJobState>& reply) {
    absl::MutexLock lock(&mu);
    status = reply.status();
  });
  connector_.reset();
  {
    absl::MutexLock lock(&mu);
    ASSERT_TRUE(status.has_value());
    EXPECT_EQ(status->code(), absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(Heartbeat(*client, 0).code(), absl::StatusCode::kCancelled);
}

// With gRPC 1.51.1 a channel that is destroyed by a thread of its own callbacks ends the process.
TEST(GrpcConnector, AClientMayGoWhileItsCallRunsAndTheConnectorRightAfter) {
  for (int round = 0; round < 200; ++round) {
    absl::Notification ended;
    {
      auto connector = MakeGrpcConnector();
      connector->ConnectCoordinator("127.0.0.1:1")
          ->GetStatus(GetStatusRequest(), SteadyNow() + absl::Seconds(5),
                      [&](const absl::StatusOr<GetStatusReply>&) { ended.Notify(); });
      if (round % 2 == 0) ended.WaitForNotification();
    }
    ASSERT_TRUE(ended.HasBeenNotified());
  }
}

}  // namespace
}  // namespace parley
