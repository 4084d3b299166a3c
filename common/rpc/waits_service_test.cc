#include "common/rpc/waits_service.h"

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include "common/clock/steady_now.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/server.h"

namespace parley {
namespace {

class WaitsServiceTest : public testing::Test {
 protected:
  WaitsServiceTest() : server_(RpcServer::Start("127.0.0.1:0", {&service_}, nullptr)) {}

  grpc::Status Ask(const std::string& job, WaitsReply& reply) {
    auto stub = Waits::NewStub(MakeChannel((*server_)->address(), nullptr));
    grpc::ClientContext context;
    context.set_deadline(ToGrpcDeadline(SteadyNow() + absl::Minutes(1)));
    context.set_wait_for_ready(true);  // the machine may be too busy for a connection at once
    WaitsRequest request;
    request.set_job(job);
    return stub->WhatFor(&context, request, &reply);
  }

  WaitsService service_;
  absl::StatusOr<std::unique_ptr<RpcServer>> server_;
};

TEST_F(WaitsServiceTest, TellsWhoItIsAndWhatTheSourceSaysAsLongAsThereIsOne) {
  ASSERT_TRUE(server_.ok()) << server_.status();
  WaitsReply who;
  who.set_job("digits");
  who.set_role(SHARD);
  service_.SetWho(who);
  WaitsReply reply;
  ASSERT_TRUE(Ask("", reply).ok());
  EXPECT_EQ(reply.role(), SHARD);
  EXPECT_EQ(reply.waits_size(), 0);

  service_.SetSource([](WaitsReply& told) { told.add_waits()->set_what("the view"); });
  ASSERT_TRUE(Ask("digits", reply).ok());
  ASSERT_EQ(reply.waits_size(), 1);
  EXPECT_EQ(reply.waits(0).what(), "the view");

  service_.SetSource(nullptr);
  ASSERT_TRUE(Ask("digits", reply).ok());
  EXPECT_EQ(reply.waits_size(), 0);
}

TEST_F(WaitsServiceTest, SaysToWhichJobItBelongsWhereItIsAskedForAnother) {
  ASSERT_TRUE(server_.ok()) << server_.status();
  WaitsReply who;
  who.set_job("digits");
  service_.SetWho(who);
  WaitsReply reply;
  const grpc::Status status = Ask("letters", reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_NE(status.error_message().find("'digits'"), std::string::npos);
}

}  // namespace
}  // namespace parley
