#ifndef PARLEY_SERVER_COORDINATOR_SERVICE_H_
#define PARLEY_SERVER_COORDINATOR_SERVICE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/coordinator_client.h"
#include "common/job_state.h"
#include "proto/coordinator.grpc.pb.h"

namespace parley {

// All methods by callbacks, the one whose answers are long and many on bytes.
using CallbackCoordinator = Coordinator::WithRawCallbackMethod_Watch<Coordinator::CallbackService>;

// The coordinator over gRPC: translates and nothing else. Runs on gRPC's threads, none of which
// waits. Does not own what it translates to, which must outlive the server. A state is encoded once
// for all who wait for it: to copy, encode and free a view of a thousand members for each of them
// took half a core and a gigabyte with one lost worker in six seconds (coordinator_benchmark).
class CoordinatorService final : public CallbackCoordinator {
 public:
  // longest_park: how long a Watch call parks at most, whatever its deadline.
  CoordinatorService(CoordinatorClient& coordinator, absl::Duration longest_park)
      : coordinator_(coordinator), longest_park_(longest_park) {}

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext*, const JoinRequest*,
                                 JoinReply*) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext*, const HeartbeatRequest*,
                                      HeartbeatReply*) override;
  grpc::ServerUnaryReactor* Watch(grpc::CallbackServerContext*, const grpc::ByteBuffer*,
                                  grpc::ByteBuffer*) override;
  grpc::ServerUnaryReactor* RegisterModel(grpc::CallbackServerContext*, const RegisterModelRequest*,
                                          RegisterModelReply*) override;
  grpc::ServerUnaryReactor* ReportReady(grpc::CallbackServerContext*, const ReportReadyRequest*,
                                        ReportReadyReply*) override;
  grpc::ServerUnaryReactor* ReportVerdicts(grpc::CallbackServerContext*,
                                           const ReportVerdictsRequest*,
                                           ReportVerdictsReply*) override;
  grpc::ServerUnaryReactor* ReportEvaluation(grpc::CallbackServerContext*,
                                             const ReportEvaluationRequest*,
                                             ReportEvaluationReply*) override;
  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext*, const FinishRequest*,
                                   FinishReply*) override;
  grpc::ServerUnaryReactor* ReportCheckpointFile(grpc::CallbackServerContext*,
                                                 const ReportCheckpointFileRequest*,
                                                 ReportCheckpointFileReply*) override;
  grpc::ServerUnaryReactor* Fail(grpc::CallbackServerContext*, const FailRequest*,
                                 FailReply*) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext*, const LeaveRequest*,
                                  LeaveReply*) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext*, const GetStatusRequest*,
                                      GetStatusReply*) override;
  grpc::ServerUnaryReactor* AskForCheckpoint(grpc::CallbackServerContext*,
                                             const AskForCheckpointRequest*,
                                             AskForCheckpointReply*) override;
  grpc::ServerUnaryReactor* SetWorkers(grpc::CallbackServerContext*, const SetWorkersRequest*,
                                       SetWorkersReply*) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext*, const DrainRequest*,
                                  DrainReply*) override;
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext*, const StopRequest*,
                                 StopReply*) override;

 private:
  grpc::ByteBuffer Encoded(const SharedJobState& state);

  CoordinatorClient& coordinator_;
  const absl::Duration longest_park_;
  absl::Mutex mu_;
  // The last state with a view, and its bytes, which those who are sent them share.
  SharedJobState encoded_state_ ABSL_GUARDED_BY(mu_);
  grpc::ByteBuffer encoded_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_SERVICE_H_
