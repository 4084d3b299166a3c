// The adapter over gRPC on loopback: every call arrives, statuses and parked calls come back.
#include "server/coordinator/service.h"

#include <gtest/gtest.h>

#include "common/clock/steady_now.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "server/coordinator/coordinator_fixture.h"
#include "server/coordinator/locked_coordinator.h"
#include "server/coordinator/ticker.h"

namespace parley {
namespace {

class CoordinatorServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = RpcServer::Start("127.0.0.1:0", {&service_}, nullptr);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    coordinator_.Open(1, server_->address());
    stub_ = Coordinator::NewStub(MakeChannel(server_->address(), nullptr));
  }
  void TearDown() override {
    coordinator_.Close();
    server_->Shutdown(absl::Seconds(5));
  }

  template <class Request, class Reply>
  absl::Status Call(grpc::Status (Coordinator::Stub::*method)(grpc::ClientContext*, const Request&,
                                                              Reply*),
                    const Request& request, Reply* reply,
                    absl::Duration timeout = absl::Seconds(20)) {
    grpc::ClientContext context;
    context.set_deadline(ToGrpcDeadline(SteadyNow() + timeout));
    return FromGrpc((stub_.get()->*method)(&context, request, reply), server_->address());
  }

  CallHeader Join(Role role, uint64_t incarnation) {
    JoinRequest request;
    request.mutable_header()->set_job("digits");
    request.mutable_header()->set_incarnation(incarnation);
    request.set_role(role);
    request.set_job_fingerprint("00000000000000aa");
    request.set_address("127.0.0.1:" + std::to_string(incarnation));
    JoinReply reply;
    const absl::Status status = Call(&Coordinator::Stub::Join, request, &reply);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(reply.generation(), 1u);
    CallHeader header = request.header();
    header.set_member(reply.member());
    return header;
  }

  template <class Request>
  static Request From(const CallHeader& header) {
    Request request;
    *request.mutable_header() = header;
    return request;
  }

  LockedCoordinator coordinator_{CoordinatorFixture::DefaultOptions(1, 1),
                                 [] { return SteadyNow(); }};
  CoordinatorService service_{coordinator_, absl::Seconds(10)};
  Ticker ticker_{absl::Milliseconds(20), [this] { coordinator_.Tick(); }};
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<Coordinator::Stub> stub_;
};

TEST_F(CoordinatorServiceTest, AJobRunsOverGrpcFromJoinToLeave) {
  CallHeader shard = Join(SHARD, 11);
  CallHeader worker = Join(WORKER, 12);
  HeartbeatReply heartbeat;
  EXPECT_TRUE(Call(&Coordinator::Stub::Heartbeat, From<HeartbeatRequest>(shard), &heartbeat).ok());

  auto model = CoordinatorFixture::Model();
  *model.mutable_header() = worker;
  RegisterModelReply registered;
  ASSERT_TRUE(Call(&Coordinator::Stub::RegisterModel, model, &registered).ok());
  WatchReply state;
  ASSERT_TRUE(Call(&Coordinator::Stub::Watch, From<WatchRequest>(shard), &state).ok());
  ASSERT_EQ(state.phase(), PREPARING);
  for (CallHeader* header : {&shard, &worker}) {
    header->set_job_epoch(state.view().job_epoch());
    header->set_view_epoch(state.view().view_epoch());
  }
  ReportReadyReply ready;
  ASSERT_TRUE(Call(&Coordinator::Stub::ReportReady, From<ReportReadyRequest>(shard), &ready).ok());

  auto verdicts = From<ReportVerdictsRequest>(shard);
  Verdict* verdict = verdicts.add_verdicts();
  verdict->set_step(1);
  verdict->set_outcome(Verdict::APPLY);
  Share* share = verdict->add_shares();
  share->set_samples(10);
  share->add_ranges()->set_end(10);
  ReportVerdictsReply decided;
  absl::Status status = Call(&Coordinator::Stub::ReportVerdicts, verdicts, &decided);
  ASSERT_TRUE(status.ok()) << status;

  auto evaluation = From<ReportEvaluationRequest>(worker);
  evaluation.mutable_part()->set_version(1);
  evaluation.mutable_part()->set_samples(20);
  ReportEvaluationReply evaluated;
  ASSERT_TRUE(Call(&Coordinator::Stub::ReportEvaluation, evaluation, &evaluated).ok());

  auto finish = From<FinishRequest>(worker);
  finish.set_last_step(1);
  FinishReply finished;
  ASSERT_TRUE(Call(&Coordinator::Stub::Finish, finish, &finished).ok());
  std::vector<FileWork::Kind> done;
  const auto perform = [&](const FileWork& work) {
    done.push_back(work.kind);
    return absl::OkStatus();
  };
  coordinator_.DoFileWork(perform);
  auto file = From<ReportCheckpointFileRequest>(shard);
  file.set_step(1);
  file.mutable_file()->set_name("shard-0.safetensors");
  ReportCheckpointFileReply written;
  status = Call(&Coordinator::Stub::ReportCheckpointFile, file, &written);
  ASSERT_TRUE(status.ok()) << status;
  coordinator_.DoFileWork(perform);
  EXPECT_EQ(done.size(), 3u);

  GetStatusReply told;
  ASSERT_TRUE(Call(&Coordinator::Stub::GetStatus, GetStatusRequest(), &told).ok());
  EXPECT_EQ(told.phase(), FINISHED);
  EXPECT_EQ(told.samples(), 10u);
  EXPECT_EQ(told.evaluations_size(), 1);
  LeaveReply left;
  for (const CallHeader& header : {shard, worker}) {
    ASSERT_TRUE(Call(&Coordinator::Stub::Leave, From<LeaveRequest>(header), &left).ok());
  }
  EXPECT_TRUE(coordinator_.Read([](const auto& core) { return core.MayExit(SteadyNow()); }));
}

TEST_F(CoordinatorServiceTest, AParkedWatchIsAnsweredUnchangedBeforeItsDeadline) {
  const CallHeader shard = Join(SHARD, 11);
  auto request = From<WatchRequest>(shard);
  WatchReply state;
  ASSERT_TRUE(Call(&Coordinator::Stub::Watch, request, &state).ok());
  request.set_seen_revision(state.revision());
  const absl::Time begin = SteadyNow();
  const absl::Status status =
      Call(&Coordinator::Stub::Watch, request, &state, absl::Milliseconds(1500));
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(state.revision(), request.seen_revision());
  EXPECT_GE(SteadyNow() - begin, absl::Milliseconds(1200));
}

TEST_F(CoordinatorServiceTest, AFailureIsToldToWhoeverWatches) {
  const CallHeader shard = Join(SHARD, 11);
  const CallHeader worker = Join(WORKER, 12);
  WatchReply state;
  auto request = From<WatchRequest>(shard);
  request.set_seen_revision(1);
  std::thread failing([&] {
    auto fail = From<FailRequest>(worker);
    fail.set_reason("no data");
    FailReply reply;
    EXPECT_TRUE(Call(&Coordinator::Stub::Fail, fail, &reply).ok());
  });
  while (state.phase() != FAILED) {
    ASSERT_TRUE(Call(&Coordinator::Stub::Watch, request, &state).ok());
  }
  failing.join();
  EXPECT_EQ(state.cause().text(), "worker 0 at 127.0.0.1:12 (pid 0): no data; last decided step 0");
}

TEST_F(CoordinatorServiceTest, RefusalsComeBackWithTheirCode) {
  HeartbeatRequest stranger;
  stranger.mutable_header()->set_job("digits");
  HeartbeatReply reply;
  EXPECT_EQ(Call(&Coordinator::Stub::Heartbeat, stranger, &reply).code(),
            absl::StatusCode::kAborted);
  stranger.mutable_header()->set_job("letters");
  EXPECT_EQ(Call(&Coordinator::Stub::Heartbeat, stranger, &reply).code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace parley
