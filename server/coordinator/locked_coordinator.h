#ifndef PARLEY_SERVER_COORDINATOR_LOCKED_COORDINATOR_H_
#define PARLEY_SERVER_COORDINATOR_LOCKED_COORDINATOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/coordinator_client.h"
#include "common/job_state.h"
#include "server/coordinator/coordinator.h"

namespace parley {

// The coordinator behind its lock, as a CoordinatorClient: what the gRPC service translates to, and
// what tests and simulations call without a network. It owns the core. The clock is given, time
// passes in Tick alone, and so a test may use a virtual one. `done` runs on the thread that calls
// (or ticks, or records), after the lock. Thread-safe; re-entrant from `done`.
//
// Where states are recorded (RecordWith), no answer leaves that tells of a change which is not
// recorded yet: it is held until the record is there. Changes of many calls go into one record.
// Heartbeats and verdicts that change nothing of it are answered at once. What is held for longer
// than liveness / 2, since the disk does not take it, is answered UNAVAILABLE. Where the disk
// does not answer for stall_timeout, not even with an error, the rule is lost (Lose): members, who
// would wait for ever with a coordinator that hears them and tells nothing, are on their own then,
// and another one may come.
class LockedCoordinator final : public CoordinatorClient {
 public:
  using Clock = std::function<absl::Time()>;  // thread-safe

  LockedCoordinator(CoordinatorCore::Options options, Clock clock);

  void Join(const JoinRequest&, absl::Time deadline, Done<JoinReply>) override;
  void Heartbeat(const HeartbeatRequest&, absl::Time deadline, Done<HeartbeatReply>) override;
  void Watch(const WatchRequest&, absl::Time deadline, Done<SharedJobState>) override;
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
  void AskForCheckpoint(const AskForCheckpointRequest&, absl::Time deadline,
                        Done<AskForCheckpointReply>) override;
  void SetWorkers(const SetWorkersRequest&, absl::Time deadline, Done<SetWorkersReply>) override;
  void Drain(const DrainRequest&, absl::Time deadline, Done<DrainReply>) override;
  void Stop(const StopRequest&, absl::Time deadline, Done<StopReply>) override;

  // As in CoordinatorCore, at the clock's time.
  void Open(uint64_t generation, const std::string& address);
  void Tick();  // touches no file, and waits for nobody who does
  void FailItself(const std::string& reason);
  void PreemptItself(const std::string& reason, absl::Duration time);
  void Close();
  absl::Status Restore(const CoordinatorState& state);

  // From now on states are recorded; the present one is already. `due` is called, without the lock,
  // when Record has something to do. Before Open.
  void RecordWith(std::function<void()> due);

  // Appends the state, if there is anything new in it, outside the lock, and lets the answers go
  // that have waited for it. Returns the error of `append`: then it is to be called again. By one
  // thread at a time.
  using Append = std::function<absl::Status(const CoordinatorState& state)>;
  absl::Status Record(const Append& append);
  // Waits until all is recorded. DeadlineExceeded: it is not after `limit`; else why the rule is
  // lost, and with it what is not recorded.
  absl::Status AwaitRecorded(absl::Duration limit);

  // Another coordinator rules the job, or this one cannot record any more, which `why` tells:
  // nobody is told anything any more, every call is answered UNAVAILABLE.
  void Lose(const absl::Status& why);
  // OK until then.
  absl::Status lost() const;

  // Does the file work that is due and whose reason is recorded, on this thread and outside the
  // lock, until there is none.
  using FileWorker = std::function<absl::Status(FileWork&)>;
  void DoFileWork(const FileWorker& worker);

  // Waits until there is file work, the rule is lost, or the state or the members are not as at the
  // last call; at most `limit`.
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
  void Call(Method<Request, Reply> method, const Request& request, Done<Reply> done,
            bool may_overtake = false);
  bool Changed() const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  bool IsRecorded() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return !due_ || recorded_ >= core_.durable_revision();
  }
  bool IsRecordedOrLost() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return IsRecorded() || !lost_.ok();
  }

  // After each call of the core: sees to it that what is new is recorded.
  void Announce(Replies& replies) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // An answer, to be given when all that it may tell of is recorded.
  template <class Reply>
  void Hand(Done<Reply> done, absl::StatusOr<Reply> reply);
  // The same for a call that may be parked.
  template <class Reply>
  Done<Reply> Handing(Done<Reply> done);
  void RefuseHeld(absl::Time held_until, const absl::Status& why);

  struct Held {
    uint64_t revision;  // that must be recorded first
    absl::Time since;
    std::function<void(const absl::Status& instead)> answer;
  };

  const Clock clock_;
  const absl::Duration longest_held_;
  const absl::Duration longest_unrecorded_;
  mutable absl::Mutex mu_;
  CoordinatorCore core_ ABSL_GUARDED_BY(mu_);
  uint64_t seen_revision_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t seen_members_ ABSL_GUARDED_BY(mu_) = 0;
  std::function<void()> due_ ABSL_GUARDED_BY(mu_);  // empty: nothing is recorded
  bool announced_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t recorded_ ABSL_GUARDED_BY(mu_) = 0;  // the core's durable_revision
  // The oldest change that is not, or when the disk last refused it; infinite: all are.
  absl::Time unrecorded_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Time last_tick_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Status not_recorded_ ABSL_GUARDED_BY(mu_);  // why the last attempt failed
  std::deque<Held> held_ ABSL_GUARDED_BY(mu_);      // by revision
  absl::Status lost_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_LOCKED_COORDINATOR_H_
