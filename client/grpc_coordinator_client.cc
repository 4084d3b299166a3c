#include "client/grpc_coordinator_client.h"

#include <memory>
#include <utility>

#include "client/grpc_peer.h"
#include "proto/coordinator.grpc.pb.h"

namespace parley {
namespace {

class GrpcCoordinatorClient final : public CoordinatorClient {
 public:
  GrpcCoordinatorClient(std::string address, SharedCredentials credentials,
                        std::shared_ptr<OpenCalls> calls)
      : peer_(std::move(address), std::move(credentials), std::move(calls)) {}

  void Join(const JoinRequest& request, absl::Time deadline, Done<JoinReply> done) override {
    peer_.Call(&Stub::Join, request, deadline, std::move(done));
  }
  void Heartbeat(const HeartbeatRequest& request, absl::Time deadline,
                 Done<HeartbeatReply> done) override {
    peer_.Call(&Stub::Heartbeat, request, deadline, std::move(done));
  }
  void Watch(const WatchRequest& request, absl::Time deadline, Done<SharedJobState> done) override {
    peer_.Call(&Stub::Watch, request, deadline,
               Done<WatchReply>([done = std::move(done)](absl::StatusOr<WatchReply> reply) {
                 if (!reply.ok()) return done(reply.status());
                 done(std::make_shared<const WatchReply>(*std::move(reply)));
               }));
  }
  void RegisterModel(const RegisterModelRequest& request, absl::Time deadline,
                     Done<RegisterModelReply> done) override {
    peer_.Call(&Stub::RegisterModel, request, deadline, std::move(done));
  }
  void ReportReady(const ReportReadyRequest& request, absl::Time deadline,
                   Done<ReportReadyReply> done) override {
    peer_.Call(&Stub::ReportReady, request, deadline, std::move(done));
  }
  void ReportVerdicts(const ReportVerdictsRequest& request, absl::Time deadline,
                      Done<ReportVerdictsReply> done) override {
    peer_.Call(&Stub::ReportVerdicts, request, deadline, std::move(done));
  }
  void ReportEvaluation(const ReportEvaluationRequest& request, absl::Time deadline,
                        Done<ReportEvaluationReply> done) override {
    peer_.Call(&Stub::ReportEvaluation, request, deadline, std::move(done));
  }
  void Finish(const FinishRequest& request, absl::Time deadline, Done<FinishReply> done) override {
    peer_.Call(&Stub::Finish, request, deadline, std::move(done));
  }
  void ReportCheckpointFile(const ReportCheckpointFileRequest& request, absl::Time deadline,
                            Done<ReportCheckpointFileReply> done) override {
    peer_.Call(&Stub::ReportCheckpointFile, request, deadline, std::move(done));
  }
  void Fail(const FailRequest& request, absl::Time deadline, Done<FailReply> done) override {
    peer_.Call(&Stub::Fail, request, deadline, std::move(done));
  }
  void Leave(const LeaveRequest& request, absl::Time deadline, Done<LeaveReply> done) override {
    peer_.Call(&Stub::Leave, request, deadline, std::move(done));
  }
  void GetStatus(const GetStatusRequest& request, absl::Time deadline,
                 Done<GetStatusReply> done) override {
    peer_.Call(&Stub::GetStatus, request, deadline, std::move(done));
  }
  void AskForCheckpoint(const AskForCheckpointRequest& request, absl::Time deadline,
                        Done<AskForCheckpointReply> done) override {
    peer_.Call(&Stub::AskForCheckpoint, request, deadline, std::move(done));
  }
  void SetWorkers(const SetWorkersRequest& request, absl::Time deadline,
                  Done<SetWorkersReply> done) override {
    peer_.Call(&Stub::SetWorkers, request, deadline, std::move(done));
  }
  void Drain(const DrainRequest& request, absl::Time deadline, Done<DrainReply> done) override {
    peer_.Call(&Stub::Drain, request, deadline, std::move(done));
  }
  void Stop(const StopRequest& request, absl::Time deadline, Done<StopReply> done) override {
    peer_.Call(&Stub::Stop, request, deadline, std::move(done));
  }

 private:
  using Stub = GrpcPeer<Coordinator>::Stub;

  const GrpcPeer<Coordinator> peer_;
};

}  // namespace

std::shared_ptr<CoordinatorClient> MakeGrpcCoordinatorClient(std::string address,
                                                             SharedCredentials credentials,
                                                             std::shared_ptr<OpenCalls> calls) {
  return std::make_shared<GrpcCoordinatorClient>(std::move(address), std::move(credentials),
                                                 std::move(calls));
}

}  // namespace parley
