#ifndef PARLEY_CLIENT_COORDINATOR_CLIENT_H_
#define PARLEY_CLIENT_COORDINATOR_CLIENT_H_

#include "absl/time/time.h"
#include "common/job_state.h"
#include "common/replies.h"
#include "proto/coordinator.pb.h"

namespace parley {

// The coordinator as its callers see it; proto/coordinator.proto says what each call does and which
// codes it returns. One attempt each: retrying is the caller's (client/retry.h). Thread-safe.
// `done` runs on a thread of the implementation and must not block.
class CoordinatorClient {
 public:
  virtual ~CoordinatorClient() = default;

  virtual void Join(const JoinRequest&, absl::Time deadline, Done<JoinReply>) = 0;
  virtual void Heartbeat(const HeartbeatRequest&, absl::Time deadline, Done<HeartbeatReply>) = 0;
  virtual void Watch(const WatchRequest&, absl::Time deadline, Done<SharedJobState>) = 0;
  virtual void RegisterModel(const RegisterModelRequest&, absl::Time deadline,
                             Done<RegisterModelReply>) = 0;
  virtual void ReportReady(const ReportReadyRequest&, absl::Time deadline,
                           Done<ReportReadyReply>) = 0;
  virtual void ReportVerdicts(const ReportVerdictsRequest&, absl::Time deadline,
                              Done<ReportVerdictsReply>) = 0;
  virtual void ReportEvaluation(const ReportEvaluationRequest&, absl::Time deadline,
                                Done<ReportEvaluationReply>) = 0;
  virtual void Finish(const FinishRequest&, absl::Time deadline, Done<FinishReply>) = 0;
  virtual void ReportCheckpointFile(const ReportCheckpointFileRequest&, absl::Time deadline,
                                    Done<ReportCheckpointFileReply>) = 0;
  virtual void Fail(const FailRequest&, absl::Time deadline, Done<FailReply>) = 0;
  virtual void Leave(const LeaveRequest&, absl::Time deadline, Done<LeaveReply>) = 0;
  virtual void GetStatus(const GetStatusRequest&, absl::Time deadline, Done<GetStatusReply>) = 0;
  virtual void AskForCheckpoint(const AskForCheckpointRequest&, absl::Time deadline,
                                Done<AskForCheckpointReply>) = 0;
  virtual void SetWorkers(const SetWorkersRequest&, absl::Time deadline, Done<SetWorkersReply>) = 0;
  virtual void Drain(const DrainRequest&, absl::Time deadline, Done<DrainReply>) = 0;
  virtual void Stop(const StopRequest&, absl::Time deadline, Done<StopReply>) = 0;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_COORDINATOR_CLIENT_H_
