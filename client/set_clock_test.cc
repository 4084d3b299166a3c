// A peer that is away while the machine's clock is set.
#include <gtest/gtest.h>

#include <string>

#include "absl/time/clock.h"
#include "client/grpc_connector.h"
#include "common/clock/steady_notification.h"
#include "common/clock/steady_now.h"
#include "common/clock/testing/settable_clock.h"
#include "common/rpc/reply.h"
#include "common/rpc/server.h"
#include "proto/coordinator.grpc.pb.h"

namespace parley {
namespace {

// Of an hour, which the clock is set back by, nobody waits more than this.
constexpr absl::Duration kSoon = absl::Seconds(30);

class Peer final : public Coordinator::CallbackService {
 public:
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context, const HeartbeatRequest*,
                                      HeartbeatReply* reply) override {
    auto* reactor = context->DefaultReactor();
    Answer(reactor, reply)(HeartbeatReply());
    return reactor;
  }
};

absl::Status Call(CoordinatorClient& client) {
  SteadyNotification came;
  absl::Status status;
  client.Heartbeat(HeartbeatRequest(), SteadyNow() + absl::Seconds(5),
                   [&](const absl::StatusOr<HeartbeatReply>& reply) {
                     status = reply.status();
                     came.Notify();
                   });
  EXPECT_TRUE(came.WaitFor(kSoon));
  return status;
}

class GrpcSetClock : public testing::TestWithParam<absl::Duration> {
 protected:
  ~GrpcSetClock() override { SetWallClockAhead(absl::ZeroDuration()); }
};

INSTANTIATE_TEST_SUITE_P(All, GrpcSetClock, testing::Values(absl::Hours(1), -absl::Hours(1)),
                         [](const auto& info) {
                           return info.param > absl::ZeroDuration() ? "Forward" : "Back";
                         });

TEST_P(GrpcSetClock, APeerThatComesBackIsFound) {
  Peer peer;
  auto server = RpcServer::Start("127.0.0.1:0", {&peer}, nullptr, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  const auto connector = MakeGrpcConnector(/*direct=*/false);
  const auto client = connector->ConnectCoordinator(address);
  ASSERT_EQ(Call(*client), absl::OkStatus());
  server->reset();
  // Until the channel rests between two attempts.
  for (int i = 0; i < 5; ++i) {
    EXPECT_NE(Call(*client), absl::OkStatus());
    absl::SleepFor(absl::Milliseconds(300));
  }
  SetWallClockAhead(GetParam());
  Peer again;
  const auto back = RpcServer::Start(address, {&again}, nullptr, {});
  ASSERT_TRUE(back.ok()) << back.status();
  absl::Status status;
  for (const absl::Time end = SteadyNow() + kSoon; SteadyNow() < end;) {
    status = Call(*client);
    if (status.ok()) break;
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_EQ(status, absl::OkStatus());
}

}  // namespace
}  // namespace parley
