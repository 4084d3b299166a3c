#include "client/grpc_coordinator_client.h"

#include <grpcpp/channel.h>

#include <utility>

#include "client/grpc_call.h"
#include "common/rpc/channel.h"
#include "proto/coordinator.grpc.pb.h"

namespace parley {
namespace {

class GrpcCoordinatorClient final : public CoordinatorClient {
 public:
  GrpcCoordinatorClient(std::string address, std::shared_ptr<OpenCalls> calls)
      : address_(std::move(address)),
        calls_(std::move(calls)),
        stub_(Coordinator::NewStub(MakeChannel(address_))) {}

  void Join(const JoinRequest& request, absl::Time deadline, Done<JoinReply> done) override {
    Start<JoinRequest, JoinReply>(&Stub::Join, request, deadline, std::move(done));
  }
  void Heartbeat(const HeartbeatRequest& request, absl::Time deadline,
                 Done<HeartbeatReply> done) override {
    Start<HeartbeatRequest, HeartbeatReply>(&Stub::Heartbeat, request, deadline, std::move(done));
  }
  void Watch(const WatchRequest& request, absl::Time deadline, Done<WatchReply> done) override {
    Start<WatchRequest, WatchReply>(&Stub::Watch, request, deadline, std::move(done));
  }
  void RegisterModel(const RegisterModelRequest& request, absl::Time deadline,
                     Done<RegisterModelReply> done) override {
    Start<RegisterModelRequest, RegisterModelReply>(&Stub::RegisterModel, request, deadline,
                                                    std::move(done));
  }
  void ReportReady(const ReportReadyRequest& request, absl::Time deadline,
                   Done<ReportReadyReply> done) override {
    Start<ReportReadyRequest, ReportReadyReply>(&Stub::ReportReady, request, deadline,
                                                std::move(done));
  }
  void ReportVerdicts(const ReportVerdictsRequest& request, absl::Time deadline,
                      Done<ReportVerdictsReply> done) override {
    Start<ReportVerdictsRequest, ReportVerdictsReply>(&Stub::ReportVerdicts, request, deadline,
                                                      std::move(done));
  }
  void ReportEvaluation(const ReportEvaluationRequest& request, absl::Time deadline,
                        Done<ReportEvaluationReply> done) override {
    Start<ReportEvaluationRequest, ReportEvaluationReply>(&Stub::ReportEvaluation, request,
                                                          deadline, std::move(done));
  }
  void Finish(const FinishRequest& request, absl::Time deadline, Done<FinishReply> done) override {
    Start<FinishRequest, FinishReply>(&Stub::Finish, request, deadline, std::move(done));
  }
  void ReportCheckpointFile(const ReportCheckpointFileRequest& request, absl::Time deadline,
                            Done<ReportCheckpointFileReply> done) override {
    Start<ReportCheckpointFileRequest, ReportCheckpointFileReply>(
        &Stub::ReportCheckpointFile, request, deadline, std::move(done));
  }
  void Fail(const FailRequest& request, absl::Time deadline, Done<FailReply> done) override {
    Start<FailRequest, FailReply>(&Stub::Fail, request, deadline, std::move(done));
  }
  void Leave(const LeaveRequest& request, absl::Time deadline, Done<LeaveReply> done) override {
    Start<LeaveRequest, LeaveReply>(&Stub::Leave, request, deadline, std::move(done));
  }
  void GetStatus(const GetStatusRequest& request, absl::Time deadline,
                 Done<GetStatusReply> done) override {
    Start<GetStatusRequest, GetStatusReply>(&Stub::GetStatus, request, deadline, std::move(done));
  }

 private:
  using Stub = Coordinator::StubInterface::async_interface;

  template <class Request, class Reply>
  void Start(GrpcMethod<Stub, Request, Reply> method, const Request& request, absl::Time deadline,
             Done<Reply> done) {
    StartGrpcCall(calls_, stub_->async(), method, address_, request, deadline, std::move(done));
  }

  const std::string address_;
  const std::shared_ptr<OpenCalls> calls_;
  const std::unique_ptr<Coordinator::StubInterface> stub_;
};

}  // namespace

std::shared_ptr<CoordinatorClient> MakeGrpcCoordinatorClient(std::string address,
                                                             std::shared_ptr<OpenCalls> calls) {
  return std::make_shared<GrpcCoordinatorClient>(std::move(address), std::move(calls));
}

}  // namespace parley
