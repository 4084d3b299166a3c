#include "server/coordinator/service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/rpc/reply.h"
#include "common/rpc/status.h"
#include "common/rpc/tensor_wire.h"

namespace parley {

grpc::ServerUnaryReactor* CoordinatorService::Join(grpc::CallbackServerContext* context,
                                                   const JoinRequest* request, JoinReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.Join(*request, TimeOf(*context).deadline, Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::Heartbeat(grpc::CallbackServerContext* context,
                                                        const HeartbeatRequest* request,
                                                        HeartbeatReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.Heartbeat(*request, TimeOf(*context).deadline, Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::Watch(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  WatchRequest watch;
  std::vector<TensorSlice> none;
  if (absl::Status status = DecodeTensors(*request, kNoSlices, watch, none); !status.ok()) {
    reactor->Finish(ToGrpc(status));
    return reactor;
  }
  // A tenth of its time before the caller gives up, so that an unchanged state still reaches it.
  const CallTime time = TimeOf(*context, longest_park_);
  const absl::Time park_until = time.now + (time.deadline - time.now) * 9 / 10;
  coordinator_.Watch(watch, park_until,
                     [this, reactor, reply](const absl::StatusOr<SharedJobState>& state) {
                       if (state.ok()) *reply = Encoded(*state);
                       reactor->Finish(ToGrpc(state.status()));
                     });
  return reactor;
}

grpc::ByteBuffer CoordinatorService::Encoded(const SharedJobState& state) {
  if (!state->has_view()) return EncodeMessage(*state);
  absl::MutexLock lock(&mu_);
  if (encoded_state_ != state) {
    encoded_ = EncodeMessage(*state);
    encoded_state_ = state;
  }
  return encoded_;
}

grpc::ServerUnaryReactor* CoordinatorService::RegisterModel(grpc::CallbackServerContext* context,
                                                            const RegisterModelRequest* request,
                                                            RegisterModelReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.RegisterModel(*request, TimeOf(*context).deadline, Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::ReportReady(grpc::CallbackServerContext* context,
                                                          const ReportReadyRequest* request,
                                                          ReportReadyReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.ReportReady(*request, TimeOf(*context).deadline, Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::ReportVerdicts(grpc::CallbackServerContext* context,
                                                             const ReportVerdictsRequest* request,
                                                             ReportVerdictsReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.ReportVerdicts(*request, TimeOf(*context).deadline, Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::ReportEvaluation(
    grpc::CallbackServerContext* context, const ReportEvaluationRequest* request,
    ReportEvaluationReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.ReportEvaluation(*request, TimeOf(*context).deadline, Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::Finish(grpc::CallbackServerContext* context,
                                                     const FinishRequest* request,
                                                     FinishReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.Finish(*request, TimeOf(*context).deadline, Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::ReportCheckpointFile(
    grpc::CallbackServerContext* context, const ReportCheckpointFileRequest* request,
    ReportCheckpointFileReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.ReportCheckpointFile(*request, TimeOf(*context).deadline, Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::Fail(grpc::CallbackServerContext* context,
                                                   const FailRequest* request, FailReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.Fail(*request, TimeOf(*context).deadline, Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::Leave(grpc::CallbackServerContext* context,
                                                    const LeaveRequest* request,
                                                    LeaveReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.Leave(*request, TimeOf(*context).deadline, Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::GetStatus(grpc::CallbackServerContext* context,
                                                        const GetStatusRequest* request,
                                                        GetStatusReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.GetStatus(*request, TimeOf(*context).deadline, Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::AskForCheckpoint(
    grpc::CallbackServerContext* context, const AskForCheckpointRequest* request,
    AskForCheckpointReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.AskForCheckpoint(*request, TimeOf(*context).deadline, Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::SetWorkers(grpc::CallbackServerContext* context,
                                                         const SetWorkersRequest* request,
                                                         SetWorkersReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.SetWorkers(*request, TimeOf(*context).deadline, Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::Drain(grpc::CallbackServerContext* context,
                                                    const DrainRequest* request,
                                                    DrainReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.Drain(*request, TimeOf(*context).deadline, Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::Stop(grpc::CallbackServerContext* context,
                                                   const StopRequest* request, StopReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.Stop(*request, TimeOf(*context).deadline, Answer(reactor, reply));
  return reactor;
}

}  // namespace parley
