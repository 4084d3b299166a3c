#ifndef PARLEY_SERVER_COORDINATOR_COORDINATOR_H_
#define PARLEY_SERVER_COORDINATOR_COORDINATOR_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/job/contributor_places.h"
#include "common/job_state.h"
#include "common/replies.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_log.pb.h"
#include "proto/job.pb.h"
#include "proto/waits.pb.h"
#include "server/coordinator/checkpoint_plan.h"
#include "server/coordinator/evaluations.h"
#include "server/coordinator/first_cause.h"
#include "server/coordinator/job_life.h"
#include "server/coordinator/membership.h"
#include "server/coordinator/model_registry.h"
#include "server/coordinator/training_progress.h"
#include "server/coordinator/view.h"
#include "server/coordinator/watchers.h"

namespace parley {

// The coordinator of one job as a plain state machine: who takes part, which view governs, how the
// job's life goes on, and the first cause if it fails. It owns all of that and nothing else: no
// thread, socket, clock or file. Whoever owns it calls it under one lock (LockedCoordinator does
// so, for the gRPC service and for tests alike); answers and the wake-ups of parked Watch calls run
// through `Replies`, after that lock.
//
// Epochs: job_epoch is 1 and view_epoch 0 until the view is made, which has view_epoch 1; each
// change of the workers and stages that take part makes the next one (docs/membership.md). From
// then on all that counts workers counts those behind the view's contributors, no longer
// cluster.workers. Calls that are about the caller alone (Heartbeat, Watch, RegisterModel, Fail,
// Leave) are fenced by member and incarnation; calls that change the job's state (ReportReady,
// ReportVerdicts, ReportEvaluation, Finish, ReportCheckpointFile) also by job_epoch and view_epoch.
// Every accepted call counts as having heard of the member.
//
// What must not be lost with the process is a CoordinatorState (docs/job_log.md). Changes that
// must be recorded before anybody is told of them raise durable_revision(). A coordinator that
// takes over begins with Restore, then Open.
//
// Codes: those of CallHeader (proto/types.proto) and of proto/coordinator.proto; UNAVAILABLE before
// Open.
class CoordinatorCore {
 public:
  struct Options {
    JobConfig job;            // as LoadJob gives it: defaults filled in
    std::string fingerprint;  // JobFingerprint(job)
    absl::Duration liveness = absl::Seconds(10);
    absl::Duration stall_timeout = absl::Minutes(10);
    absl::Duration gather_timeout =
        absl::Minutes(10);                           // in GATHERING, for those that have not come
    absl::Duration autonomy = absl::ZeroDuration();  // of members without their coordinator
    absl::Duration checkpoint_period = absl::ZeroDuration();  // zero: none by time
    absl::Duration preemption_grace = absl::ZeroDuration();   // zero: it ends the job at once
    // The longest time that a preempted member may say the job has; at least preemption_grace.
    absl::Duration warning_grace = absl::ZeroDuration();
    std::string checkpoint_directory;  // absolute; folders step-00000123 go into it
    std::optional<StartPoint> start;   // the checkpoint to start from, as the caller has read it
    // What SetWorkers and Drain had made of cluster.workers in an earlier run; unset: nothing.
    std::optional<uint32_t> wanted_workers;
  };

  explicit CoordinatorCore(Options options);

  // Goes on from what an earlier coordinator of this job has recorded; before Open, of a core that
  // has done nothing yet. What members are told has a newer revision than any that they know.
  //   INVALID_ARGUMENT  that one ran another job file
  //   DATA_LOSS         no core has written this
  absl::Status Restore(const CoordinatorState& state);
  // All that Restore needs.
  CoordinatorState DurableState() const;
  uint64_t durable_revision() const { return durable_revision_; }

  // This coordinator owns the job from now on, as its `generation`-th (from 1), reached at
  // `address` (host:port). Until then every call but GetStatus is answered UNAVAILABLE. Every
  // member that was restored has a full lease from now on.
  void Open(uint64_t generation, const std::string& address, absl::Time now);

  // The process is about to go: parked calls are answered with the state, and none is parked any
  // more. If the job has ended, it is over: nobody needs to be told of it again.
  void Close(Replies& replies);

  // One method for each call of proto/coordinator.proto.
  absl::StatusOr<JoinReply> Join(const JoinRequest& request, absl::Time now, Replies& replies);
  absl::StatusOr<HeartbeatReply> Heartbeat(const HeartbeatRequest& request, absl::Time now,
                                           Replies& replies);
  // Parks until there is a revision newer than seen_revision, or until time.deadline. A member has
  // one parked call: a second one answers the first.
  void Watch(const WatchRequest& request, CallTime time, Replies& replies,
             Done<SharedJobState> done);
  absl::StatusOr<RegisterModelReply> RegisterModel(const RegisterModelRequest& request,
                                                   absl::Time now, Replies& replies);
  absl::StatusOr<ReportReadyReply> ReportReady(const ReportReadyRequest& request, absl::Time now,
                                               Replies& replies);
  absl::StatusOr<ReportVerdictsReply> ReportVerdicts(const ReportVerdictsRequest& request,
                                                     absl::Time now, Replies& replies);
  absl::StatusOr<ReportEvaluationReply> ReportEvaluation(const ReportEvaluationRequest& request,
                                                         absl::Time now, Replies& replies);
  absl::StatusOr<FinishReply> Finish(const FinishRequest& request, absl::Time now,
                                     Replies& replies);
  absl::StatusOr<ReportCheckpointFileReply> ReportCheckpointFile(
      const ReportCheckpointFileRequest& request, absl::Time now, Replies& replies);
  absl::StatusOr<FailReply> Fail(const FailRequest& request, absl::Time now, Replies& replies);
  absl::StatusOr<LeaveReply> Leave(const LeaveRequest& request, absl::Time now, Replies& replies);
  absl::StatusOr<GetStatusReply> GetStatus(const GetStatusRequest& request, absl::Time now) const;
  absl::StatusOr<AskForCheckpointReply> AskForCheckpoint(const AskForCheckpointRequest& request,
                                                         absl::Time now, Replies& replies);
  absl::StatusOr<SetWorkersReply> SetWorkers(const SetWorkersRequest& request, absl::Time now,
                                             Replies& replies);
  absl::StatusOr<DrainReply> Drain(const DrainRequest& request, absl::Time now, Replies& replies);
  absl::StatusOr<StopReply> Stop(const StopRequest& request, absl::Time now, Replies& replies);

  // What the job waits for, as the coordinator sees it, for `parley why-stuck`: who is missing in
  // this phase, and whose heartbeats are late (coordinator_waits.cc).
  std::vector<Wait> Waits(absl::Time now) const;

  // Time goes on: ends leases, finds stalls, answers parked calls whose deadline has come. Call it
  // every liveness / 20 or so. After a pause of more than liveness / 2 (the coordinator itself was
  // stopped) every member gets a full lease first, since its heartbeats may still lie in the
  // socket. While no member at all is heard of, it is this coordinator that is cut off: for
  // `autonomy` nobody is removed.
  void Tick(absl::Time now, Replies& replies);

  // The coordinator's own process was told to end at once (SIGINT).
  void FailItself(const std::string& reason, absl::Time now, Replies& replies);

  // The coordinator's own process was told to end ("preempted by SIGTERM"); as Fail of a member
  // with checkpoint_first, and that time (coordinator_preemption.cc).
  void PreemptItself(const std::string& reason, absl::Duration time, absl::Time now,
                     Replies& replies);
  // Who was told to end and how, while the job goes on for a checkpoint; else empty.
  std::string preemption() const;
  absl::Time preemption_end() const;  // until when it does; infinite where nobody was told to end
  bool stopped() const { return stopped_; }  // Stop was called
  // The contributors of the view, without those that were told to go.
  uint32_t StayingContributors() const;
  // So many workers the job has when all are there.
  uint32_t wanted_workers() const { return members_.places(WORKER); }

  // What the owner has to do with files, in order; after each it calls FileWorkDone, once.
  std::vector<FileWork> TakeFileWork();
  void FileWorkDone(const FileWork& work, const absl::Status& result, absl::Time now,
                    Replies& replies);

  Phase phase() const { return life_.phase(); }
  uint64_t revision() const { return revision_; }  // of what Watch tells
  bool has_file_work() const { return !file_work_.empty(); }
  const std::optional<FirstCause>& cause() const { return cause_; }

  // FINISHED or FAILED, and every member has left or its lease is over (FAILED: or it has lasted
  // for `liveness`, and somebody has been told in that time; or for so long after that): the
  // process may go. Where it hears nobody of those that have not left, it waits for `autonomy`
  // more. One whose job was told to end goes soon after preemption_grace; one whose job has
  // FINISHED after `stall_timeout`, or as long as members go on alone where that is more.
  bool MayExit(absl::Time now) const;
  // Whom it does not wait for then: those that are heard of, and have not left.
  std::vector<std::string> StillThere(absl::Time now) const;

  // Rises when the set of members changes: targets.json is to be written anew.
  uint64_t membership_revision() const { return members_.revision(); }
  std::vector<Member> Members() const { return members_.Present(); }
  // So many there are when all are there.
  uint64_t ExpectedMembers() const;
  // Whether it has gone because it was told to.
  bool WasLetGo(uint64_t member) const;
  // Of one that has gone otherwise.
  struct Loss {
    std::string address;
    absl::Time heard_at;
    std::string why;
  };
  // nullopt: of nobody that it remembers.
  std::optional<Loss> HowLost(uint64_t member) const;

  uint64_t shards_lost() const { return shards_lost_; }
  uint64_t steps_lost() const { return steps_lost_; }
  // The version from which training would begin anew if a shard was lost now, also where
  // max_restarts does not allow it: from there the job can be resumed. 0 where there is none.
  uint64_t goes_back_to_step() const { return GoesBackTo().version; }
  const std::set<std::string>& damaged_checkpoints() const { return damaged_checkpoints_; }
  uint64_t generation() const { return generation_; }
  uint64_t job_epoch() const { return job_epoch_; }
  uint64_t view_epoch() const { return view_.view_epoch(); }  // 0: no view yet
  const ClusterView& view() const { return view_; }
  const Evaluations& evaluations() const { return evaluations_; }
  const TrainingProgress& progress() const { return progress_; }
  const CheckpointPlan& checkpoint() const { return checkpoint_; }

 private:
  using Caller = MemberTable::Entry;
  enum class Scope { kCaller, kJobState };

  // The member that calls, after all fences of `scope`.
  absl::StatusOr<Caller*> Admit(const CallHeader& header, Scope scope, absl::Time now);
  // The same for a call that only these roles make.
  absl::StatusOr<Caller*> Admit(const CallHeader& header, Scope scope,
                                std::initializer_list<Role> roles, absl::Time now);
  // FAILED_PRECONDITION where the job is in none of them.
  absl::Status InPhase(std::initializer_list<Phase> phases) const;

  // What is to be recorded has changed.
  void Change() { ++durable_revision_; }

  // The parts of Restore (coordinator_state.cc).
  absl::Status RestoreView(const CoordinatorState& state);
  absl::Status CheckRestored() const;

  // The one way into another phase. False where the transition is not legal.
  bool Enter(Phase phase, absl::Time now);
  // In bounded and async: who has completed a contribution pulls newer parameters next.
  void FollowClocks(const Verdict& verdict);
  void CountAsProgress(const Verdict& verdict, absl::Time now);
  // MemberStatus.staleness; nullopt: unset.
  std::optional<uint64_t> StalenessOf(const Caller& caller) const;
  void TrainIfShardsAreReady(absl::Time now);
  void SaveIfAllHaveFinished(absl::Time now);

  // Checkpoints (coordinator_checkpoints.cc).
  // In SAVING, whenever none is being written: the last one, or the end.
  void SaveOrEnd(absl::Time now);
  // The step leader has told of its newest mark.
  void FollowMark(const CheckpointMark& mark, absl::Time now);
  void BeginCheckpoint(uint64_t version, const DataPosition& position, absl::Time now);
  // Training goes on; the last one of a job is its end.
  void GiveUpCheckpoint(FirstCause cause, absl::Time now,
                        CheckpointPlan::GivenUp as = CheckpointPlan::GivenUp::kForAFault);
  // No more of that: what is left to do with its files.
  void Abandon(std::string why, CheckpointPlan::GivenUp as);
  // What of one is still to be done is not. True if its folder was among it: nothing has begun.
  bool DropFileWork(uint64_t checkpoint);
  void RemoveOldOnes(const std::string& newest);
  // The commit of one that was given up has come through after all.
  void CommittedLate(const FileWork& commit, absl::Time now);
  void AskNow(absl::Time now);
  void AskIfDue(absl::Time now);
  void EndSlowCheckpoint(absl::Time now);
  void EndJob(FirstCause cause, absl::Time now);
  void FailMember(const Member& member, const std::string& reason, bool preempted, absl::Time now);

  // Somebody was told to end (coordinator_preemption.cc).
  // The job goes on for at most `time`; zero: it does not.
  void Preempt(LoggedPreemption preemption, absl::Duration time, absl::Time now);
  void PreemptMember(const Member& member, const FailRequest& request, absl::Time now);
  // The checkpoint that the job goes on for is whole or given up, or the time for it is over.
  void EndPreempted(absl::Time now);
  FirstCause PreemptedCause(const std::string& outcome) const;
  // The last whole checkpoint that there is, for people.
  std::string LastWhole() const;

  // So that what is kept of members does not grow with each that comes and goes.
  void ForgetThoseLongGone();

  // Who takes part (coordinator_view.cc).
  void MakeViewIfAllAreHere(absl::Time now);
  // Somebody is gone before there is a view: its place is free again, or the job ends with `cause`.
  void LoseGathering(const Caller& member, FirstCause cause, absl::Time now, Replies& replies);
  // The worker or stage is gone: its lease has ended, or a new process has come at its address. The
  // job goes on without it, waits for another one, or ends with `cause` where it may do neither.
  void LoseContributing(const Caller& member, FirstCause cause, absl::Time now, Replies& replies);
  bool MayLose(const Caller& member) const;
  uint32_t MinWorkers() const;  // below so many contributors the job ends
  // A worker or stage that has registered while the job trains gets its place in the view.
  void TakeIn(const Caller& caller, absl::Time now);
  void ChangeView(ClusterView next, absl::Time now);
  // Whether the step that loses a worker waits for its replacement.
  bool WaitsForReplacement() const;
  // Every worker that stands behind a contributor has finished; with pipelines and node groups: all
  // of each.
  bool AllHaveFinished() const;
  // The worker has, or that of the stage's pipeline.
  bool HasFinished(const Member& member) const;
  // A worker or stage that has joined a running job and is in no view: nobody depends on it.
  bool IsApart(const Caller& caller) const;
  // NOT_FOUND where an operator means another job.
  absl::Status OfThisJob(const std::string& job) const;
  // FAILED_PRECONDITION where the worker is in no view.
  absl::Status InView(const Caller& worker) const;
  // No later version can come; a bound on what is reported about them.
  uint64_t LastVersion() const;

  // More or fewer workers (coordinator_scaling.cc).
  // FAILED_PRECONDITION, with what to do, where the job can have neither.
  absl::Status MayScale(std::initializer_list<Phase> phases) const;
  // Fewer workers than these are never asked for.
  uint32_t LeastWorkers() const;
  void TellToGo(const Caller& worker, absl::Time now);
  absl::Status LetGo(Caller& worker, absl::Time now);
  // Whoever was told to go and has not gone counts as lost.
  void EndDrains(absl::Time now, Replies& replies);

  // Pipelines and node groups (coordinator_places.cc).
  ContributorShape shape() const { return ShapeOf(options_.job.cluster()); }
  // Several processes stand behind each contributor, which can do nothing without each of them.
  bool joint() const { return shape().parts() > 1; }
  // Each empty place of a contributor that has steps to do goes to who has come for it, or waits.
  void FillPlaces(absl::Time now);
  void FillPlace(const std::pair<Role, uint32_t>& at, absl::Time now);
  // The job has gone back, and has steps to do again: whoever has a place takes part, and whoever
  // was lost is waited for, where lost workers are.
  void RefillPlaces(absl::Time now);

  // A lost shard (coordinator_recovery.cc).
  struct GoBackPoint {
    std::string folder;  // empty: there is none
    uint64_t version = 0;
    DataPosition position;
  };
  GoBackPoint GoesBackTo() const;
  // There is to be something to go back to, and there is nothing.
  bool LacksCheckpoint() const;
  bool MayGoBack() const;
  // The job pauses until another shard has its place, or ends with `cause`.
  void LoseShard(const Caller& shard, FirstCause cause, absl::Time now, Replies& replies);
  void GoBackIfShardsAreThere(absl::Time now);
  void GoBack(absl::Time now);

  // A damaged checkpoint (coordinator_damage.cc).
  void FindPrevious(FirstCause damage, absl::Time now);
  void FollowPrevious(const FileWork& work, const absl::Status& result, absl::Time now);

  // Time goes on (coordinator_time.cc).
  // Whether no member at all is heard of, so that this coordinator may be the one that is cut off.
  bool IsAlone(absl::Time now);
  void EndLeases(absl::Time now, Replies& replies);
  void EndWait(absl::Time now);
  void EndStall(absl::Time now);
  // Where all do nothing but wait.
  void EndDeadlock(absl::Time now);
  // A step is decided, or the job is in another phase: what was waited for before that is over.
  void GotOn(absl::Time now);
  // Somebody has come or gone, or is to: whom the job waits for, or another one.
  void Came(bool is_awaited, absl::Time now);
  // Of members, and of those that have registered, without those that were told to go.
  std::pair<size_t, size_t> Gathered() const;
  // When one that is there, and that others wait for while members gather, last got on.
  absl::Time GotOnWhileGathering(const Caller& entry) const;
  // While members gather: one has joined or registered. Only more of them than ever before are what
  // the job waits for; who takes the place of one that has gone counts as one that comes.
  void CountGathered(absl::Time now);
  // It takes part no more; what it has done still counts.
  void SeeOff(const Caller& gone);
  // Whether what it did until `when` is no more than that it has come.
  bool HasJustCome(const Caller& entry, absl::Time when) const;

  // Answers parked calls if the revision is newer than the one they were told.
  void TellWatchers(Replies& replies);
  // Made once for all who ask before anything changes.
  SharedJobState State();
  WatchReply MakeState() const;
  // Of what the present phase waits for.
  struct Missing {
    std::vector<std::string> who;            // for people
    std::vector<WaitedFor> on;               // their places, in that order; no role: its own work
    std::vector<const Caller*> are_awaited;  // the members among them
  };
  Missing WhatIsMissing() const;
  // Whom the shards have their values from; nobody where the job starts from files. How these get
  // on is seen by the shards, whose slices fill: who has given all may wait for ever for a shard.
  std::vector<const Caller*> InitialValuesFrom() const;
  // How long the job waits for it.
  absl::Duration TimeoutOf(const Missing& missing) const;
  // When something of it last came.
  absl::Time LastEvent(const Missing& missing) const;

  // Something waits for another one in the place of `lost`.
  void Vacate(const std::pair<Role, uint32_t>& place, const Caller& lost, absl::Time now);

  // A place that nobody has taken again, and that something waits for: a shard's, or a worker's or
  // stage's in the view, for an open step, or for the shards in PREPARING, whose values contributor
  // 0 sets.
  struct Vacancy {
    Member lost;
    absl::Time heard_at;
    absl::Time since;
  };

  // Constant after construction.
  const Options options_;

  uint64_t generation_ = 0;
  std::string address_;
  bool closed_ = false;
  JobLife life_;
  MemberTable members_;
  ModelRegistry models_;
  ClusterView view_;
  std::map<std::pair<Role, uint32_t>, Vacancy> vacancies_;  // of workers and stages, by ordinal
  // Since when places have been vacant first, in the step that is open: of those too that somebody
  // has had since.
  std::map<std::pair<Role, uint32_t>, absl::Time> first_vacant_;
  std::map<uint32_t, Vacancy> lost_shards_;  // by ordinal
  std::optional<FirstCause> lost_cause_;     // of the last of them: why the job ends if none comes
  bool going_back_ = false;                  // as soon as all shards are there
  uint64_t shards_lost_ = 0;
  uint64_t steps_lost_ = 0;           // that were done again
  std::optional<FirstCause> damage_;  // of the view's start_from; an earlier one is looked for
  std::set<std::string> damaged_checkpoints_;  // folders
  std::string started_from_;  // the first view's start_from, or what was in its place
  // Somebody has come or gone: others may have waited for that until then.
  absl::Time view_changed_at_ = absl::InfinitePast();
  absl::Time gone_moved_at_ = absl::InfinitePast();  // when one that has gone since last got on
  std::pair<size_t, size_t> most_gathered_;          // at once, for the number that the job wants
  std::vector<bool> ready_shards_;
  TrainingProgress progress_;
  Evaluations evaluations_;
  WorkersFinished finished_;
  CheckpointPlan checkpoint_;
  uint64_t checkpoints_asked_ = 0;
  absl::Time checkpoint_moved_at_ = absl::InfinitePast();  // its folder, or a file of it, was there
  absl::Time asked_at_ = absl::InfinitePast();             // for the last one by time
  bool has_scaled_ = false;                                // SetWorkers or Drain has been called
  bool stopped_ = false;                                   // by an operator
  std::optional<LoggedPreemption> preemption_;  // the first one; the job goes on for a checkpoint
  std::optional<FirstCause> cause_;
  Watchers watchers_;
  uint64_t revision_ = 1;
  uint64_t told_revision_ = 1;
  uint64_t durable_revision_ = 0;
  SharedJobState state_;  // as it was at state_at_: revision_, durable_revision_
  std::pair<uint64_t, uint64_t> state_at_;
  uint64_t job_epoch_ = 1;
  absl::Time last_tick_ = absl::InfinitePast();
  // After a pause of the coordinator itself, or of all it hears; or when it took over.
  absl::Time resumed_at_ = absl::InfinitePast();
  bool alone_ = false;
  // While members gather: the first member was heard of again after none was.
  absl::Time heard_again_at_ = absl::InfinitePast();
  absl::Time last_event_ = absl::InfinitePast();  // something of what the job waits for has come
  absl::Time training_since_ = absl::InfiniteFuture();
  absl::Time ended_at_ = absl::InfiniteFuture();
  // When it was first known that somebody knows of the end: it has left since, or still calls.
  absl::Time told_after_end_ = absl::InfiniteFuture();
  std::vector<FileWork> file_work_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_COORDINATOR_H_
