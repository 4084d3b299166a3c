// Calls to a peer that does not answer, while the machine's clock is set.
#include <arpa/inet.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock/steady_notification.h"
#include "common/clock/steady_now.h"
#include "common/clock/testing/settable_clock.h"
#include "common/file_descriptor.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "proto/coordinator.grpc.pb.h"

namespace parley {
namespace {

// What a deadline is put off by, at most, though the clock is set back by an hour.
constexpr absl::Duration kSoon = absl::Seconds(20);

absl::Time WallNow() { return absl::FromChrono(std::chrono::system_clock::now()); }

// A peer that takes connections, and says nothing.
class SilentPeer {
 public:
  SilentPeer() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(fd_.get(), generic, size), 0);
    EXPECT_EQ(::listen(fd_.get(), 16), 0);
    EXPECT_EQ(::getsockname(fd_.get(), generic, &size), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }

  const std::string& address() const { return address_; }

 private:
  FileDescriptor fd_;
  std::string address_;
};

class RpcSetClock : public testing::TestWithParam<absl::Duration> {
 protected:
  ~RpcSetClock() override { SetWallClockAhead(absl::ZeroDuration()); }
};

INSTANTIATE_TEST_SUITE_P(All, RpcSetClock, testing::Values(absl::Hours(1), -absl::Hours(1)),
                         [](const auto& info) {
                           return info.param > absl::ZeroDuration() ? "Forward" : "Back";
                         });

TEST_P(RpcSetClock, ACallEndsAtItsDeadline) {
  constexpr absl::Duration kLimit = absl::Milliseconds(1500);
  const SilentPeer peer;
  const auto stub = Coordinator::NewStub(MakeChannel(peer.address(), nullptr));
  grpc::ClientContext context;
  const LeaveRequest request;
  LeaveReply reply;
  grpc::Status status;
  SteadyNotification ended;
  const absl::Time begin = SteadyNow();
  context.set_deadline(ToGrpcDeadline(begin + kLimit));
  context.set_wait_for_ready(true);
  stub->async()->Leave(&context, &request, &reply, [&](grpc::Status came) {
    status = came;
    ended.Notify();
  });
  absl::SleepFor(kLimit / 3);
  SetWallClockAhead(GetParam());
  const bool came = ended.WaitFor(kSoon);
  EXPECT_TRUE(came);
  if (!came) {
    context.TryCancel();
    ASSERT_TRUE(ended.WaitFor(kSoon));
  }
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_GE(SteadyNow() - begin, kLimit - absl::Milliseconds(10));
}

TEST_P(RpcSetClock, DeadlinesAreTranslatedByTheClockAsItIsSet) {
  SetWallClockAhead(GetParam());
  const absl::Time now = SteadyNow();
  const auto deadline = ToGrpcDeadline(now + absl::Seconds(20));
  EXPECT_LT(absl::AbsDuration(absl::FromChrono(deadline) - WallNow() - absl::Seconds(20)), kSoon);
  const absl::Time back = FromGrpcDeadline(deadline, now + absl::Hours(1));
  EXPECT_LT(absl::AbsDuration(back - now - absl::Seconds(20)), absl::Seconds(5));
  for (const absl::Time past : {absl::InfinitePast(), absl::UnixEpoch() - absl::Hours(1)}) {
    EXPECT_LT(absl::AbsDuration(absl::FromChrono(ToGrpcDeadline(past)) - WallNow()), kSoon);
  }
  EXPECT_EQ(FromGrpcDeadline(deadline, now + absl::Seconds(1)), now + absl::Seconds(1));
  EXPECT_EQ(FromGrpcDeadline(std::chrono::system_clock::time_point::max(), now), now);
}

}  // namespace
}  // namespace parley
