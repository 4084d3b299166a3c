#include "common/rpc/server.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "common/direct/tcp_socket.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/reply.h"
#include "common/rpc/status.h"
#include "proto/coordinator.grpc.pb.h"

namespace parley {
namespace {

class Refusing final : public Coordinator::CallbackService {
 public:
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context, const LeaveRequest*,
                                  LeaveReply* reply) override {
    auto* reactor = context->DefaultReactor();
    Answer(reactor, reply)(absl::AbortedError("fenced: " + std::string(10000, 'x')));
    return reactor;
  }
};

TEST(RpcServer, AnswersWithTheCoresStatusAndTellsTheObserver) {
  Refusing service;
  absl::Notification seen;
  std::string method;
  int code = -1;
  auto server = RpcServer::Start("127.0.0.1:0", {&service}, [&](auto& m, int c, absl::Duration) {
    method = m;
    code = c;
    seen.Notify();
  });
  ASSERT_TRUE(server.ok()) << server.status();
  auto stub = Coordinator::NewStub(MakeChannel((*server)->address(), nullptr));
  grpc::ClientContext context;
  LeaveReply reply;
  const absl::Status status =
      FromGrpc(stub->Leave(&context, LeaveRequest(), &reply), (*server)->address());
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_NE(status.message().find("fenced: xxx"), absl::string_view::npos);
  ASSERT_TRUE(seen.WaitForNotificationWithTimeout(absl::Seconds(10)));
  EXPECT_EQ(method, "Leave");
  EXPECT_EQ(code, static_cast<int>(absl::StatusCode::kAborted));
}

// What a probe gets that asks for the whole server: one field of its reply, the status.
std::string AskForHealth(const std::string& address) {
  grpc::GenericStub stub(MakeChannel(address, nullptr));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  const auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool answered = false;
  queue.Next(&tag, &answered);
  if (!answered || !status.ok()) return "no answer: " + status.error_message();
  grpc::Slice bytes;
  if (!reply.DumpToSingleSlice(&bytes).ok()) return "no bytes";
  return {reinterpret_cast<const char*>(bytes.begin()), bytes.size()};
}

TEST(RpcServer, HealthSaysWhatItIsTold) {
  auto server = RpcServer::Start("127.0.0.1:0", {}, nullptr);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(AskForHealth((*server)->address()), "\x08\x01");  // SERVING
  (*server)->SetServing(false);
  EXPECT_EQ(AskForHealth((*server)->address()), "\x08\x02");  // NOT_SERVING
  (*server)->SetServing(true);
  EXPECT_EQ(AskForHealth((*server)->address()), "\x08\x01");
}

TEST(RpcServer, RefusesAPortInUse) {
  auto first = RpcServer::Start("127.0.0.1:0", {}, nullptr);
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = RpcServer::Start((*first)->address(), {}, nullptr);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find("in use"), absl::string_view::npos);
}

TEST(RpcServer, RefusesWhatIsNoAddress) {
  for (const char* listen : {"", "here", ":80", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:x"}) {
    EXPECT_EQ(RpcServer::Start(listen, {}, nullptr).status().code(),
              absl::StatusCode::kInvalidArgument)
        << listen;
  }
}

TEST(Status, NamesThePeerWhereNobodyListens) {
  auto stub = Coordinator::NewStub(MakeChannel("127.0.0.1:1", nullptr));
  grpc::ClientContext context;
  LeaveReply reply;
  const absl::Status status =
      FromGrpc(stub->Leave(&context, LeaveRequest(), &reply), "127.0.0.1:1");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("127.0.0.1:1"), absl::string_view::npos);
}

TEST(Channel, WaitsForAPeerThatTakesConnectionsSlowly) {
  const auto listener = ListenTcp("127.0.0.1");
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto stub =
      Coordinator::NewStub(MakeChannel("127.0.0.1:" + std::to_string(listener->port), nullptr));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(ToGrpcDeadline(SteadyNow() + absl::Milliseconds(1500)));
  LeaveReply reply;
  EXPECT_FALSE(stub->Leave(&context, LeaveRequest(), &reply).ok());
  int connections = 0;
  while (AcceptTcp(listener->fd).ok()) ++connections;
  EXPECT_EQ(connections, 1) << "whoever gives up soon only comes again";
}

TEST(Channel, GivesUpAConnectionThatHasGoneSilent) {
  const auto listener = ListenTcp("127.0.0.1");
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::thread peer([&] {
    absl::StatusOr<FileDescriptor> connection = AcceptTcp(listener->fd);
    for (int i = 0; i < 500 && !connection.ok(); ++i) {
      absl::SleepFor(absl::Milliseconds(10));
      connection = AcceptTcp(listener->fd);
    }
    ASSERT_TRUE(connection.ok()) << connection.status();
    // It has said hello (empty settings), and is cut off: what comes is taken and not answered.
    const char settings[] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
    ASSERT_EQ(send(connection->get(), settings, sizeof(settings), 0), 9);
    char byte = 0;
    ssize_t got = 1;
    for (int i = 0; i < 4000 && got != 0; ++i) {
      got = recv(connection->get(), &byte, 1, 0);
      if (got < 0) absl::SleepFor(absl::Milliseconds(10));
    }
  });
  const auto stub =
      Coordinator::NewStub(MakeChannel("127.0.0.1:" + std::to_string(listener->port), nullptr));
  grpc::ClientContext context;
  context.set_deadline(ToGrpcDeadline(SteadyNow() + absl::Seconds(30)));
  LeaveReply reply;
  EXPECT_EQ(stub->Leave(&context, LeaveRequest(), &reply).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  peer.join();
}

TEST(Channel, StaysWithAPeerThatTakesLong) {
  class Slow final : public Coordinator::CallbackService {
   public:
    grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context, const LeaveRequest*,
                                    LeaveReply*) override {
      later_ = std::thread([reactor = context->DefaultReactor()] {
        absl::SleepFor(absl::Seconds(25));
        reactor->Finish(grpc::Status::OK);
      });
      return context->DefaultReactor();
    }
    std::thread later_;
  } service;
  const auto server = RpcServer::Start("127.0.0.1:0", {&service}, nullptr);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = Coordinator::NewStub(MakeChannel((*server)->address(), nullptr));
  grpc::ClientContext context;
  LeaveReply reply;
  const grpc::Status status = stub->Leave(&context, LeaveRequest(), &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
  service.later_.join();
}

}  // namespace
}  // namespace parley
