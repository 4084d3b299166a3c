#ifndef PARLEY_SERVER_COORDINATOR_IN_PROCESS_H_
#define PARLEY_SERVER_COORDINATOR_IN_PROCESS_H_

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/coordinator_client.h"
#include "server/coordinator/coordinator.h"

namespace parley {

// The coordinator behind its lock, as a CoordinatorClient: what the gRPC service translates to, and
// what tests and simulations call without a network. It owns the core. The clock is given, time
// passes in Tick alone, and so a test may use a virtual one. `done` runs on the thread that calls
// (or ticks), after the lock. Thread-safe; re-entrant from `done`.
class InProcessCoordinator final : public CoordinatorClient {
 public:
  using Clock = std::function<absl::Time()>;  // thread-safe

  InProcessCoordinator(CoordinatorCore::Options options, Clock clock);

  void Join(const JoinRequest&, absl::Time deadline, Done<JoinReply>) override;
  void Heartbeat(const HeartbeatRequest&, absl::Time deadline, Done<HeartbeatReply>) override;
  void Watch(const WatchRequest&, absl::Time deadline, Done<WatchReply>) override;
  void RegisterModel(const RegisterModelRequest&, absl::Time deadline,
                     Done<RegisterModelReply>) override;
  void ReportReady(const ReportReadyRequest&, absl::Time deadline, Done<ReportReadyReply>) override;
  void ReportVerdicts(const ReportVerdictsRequest&, absl::Time deadline,
                      Done<ReportVerdictsReply>) override;
  void ReportEvaluation(const ReportEvaluationRequest&, absl::Time deadline,
                        Done<ReportEvaluationReply>) override;
  void Finish(const FinishRequest&, absl::Time deadline, Done<FinishReply>) override;
  void ReportCheckpointFile(const ReportCheckpointFileRequest&, absl::Time deadline,
                            Done<ReportCheckpointFileReply>) override;
  void Fail(const FailRequest&, absl::Time deadline, Done<FailReply>) override;
  void Leave(const LeaveRequest&, absl::Time deadline, Done<LeaveReply>) override;
  void GetStatus(const GetStatusRequest&, absl::Time deadline, Done<GetStatusReply>) override;

  // As in CoordinatorCore, at the clock's time.
  void Open(uint64_t generation, const std::string& address);
  void Tick();
  void FailItself(const std::string& reason, bool preempted);
  void Close();

  // Does the file work that is due, on this thread and outside the lock, until there is none.
  using FileWorker = std::function<absl::Status(const FileWork&)>;
  void DoFileWork(const FileWorker& worker);

  // Waits until there is file work or the state or the members are not as at the last call; at most
  // `limit`.
  void AwaitChange(absl::Duration limit);

  // Looks at the core under the lock: `look(core)`, which must not call back.
  template <class Look>
  auto Read(Look look) const {
    absl::ReaderMutexLock lock(&mu_);
    return look(core_);
  }

 private:
  template <class Request, class Reply>
  using Method = absl::StatusOr<Reply> (CoordinatorCore::*)(const Request&, absl::Time, Replies&);
  template <class Request, class Reply>
  void Call(Method<Request, Reply> method, const Request& request, Done<Reply> done);
  bool Changed() const ABSL_SHARED_LOCKS_REQUIRED(mu_);

  const Clock clock_;
  mutable absl::Mutex mu_;
  CoordinatorCore core_ ABSL_GUARDED_BY(mu_);
  uint64_t seen_revision_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t seen_members_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_IN_PROCESS_H_
