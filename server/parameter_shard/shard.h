#ifndef PARLEY_SERVER_PARAMETER_SHARD_SHARD_H_
#define PARLEY_SERVER_PARAMETER_SHARD_SHARD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/replies.h"
#include "proto/job.pb.h"
#include "proto/parameter_shard.pb.h"
#include "proto/types.pb.h"
#include "proto/waits.pb.h"
#include "server/parameter_shard/ahead_update.h"
#include "server/parameter_shard/checkpoint_marks.h"
#include "server/parameter_shard/clock_gate.h"
#include "server/parameter_shard/clocked_table.h"
#include "server/parameter_shard/decided_progress.h"
#include "server/parameter_shard/parameter_table.h"
#include "server/parameter_shard/parked_calls.h"
#include "server/parameter_shard/pulled_version.h"
#include "server/parameter_shard/routing.h"
#include "server/parameter_shard/step_gate.h"
#include "server/parameter_shard/step_work.h"

namespace parley {

// A request to another shard. It is to be sent until it is answered, those to one shard one after
// the other; a Close's answer comes back by OnCloseReply, an Advance's by OnAdvanceReply. An
// Advance takes the place of an earlier one that is not on its way yet. Any answer but OK,
// Unavailable, DeadlineExceeded and FailedPrecondition ends the job.
struct ToShard {
  uint32_t shard = 0;
  std::variant<CloseRequest, DecideRequest, AdvanceRequest> request;
};

// Counts since the start, for metrics.
struct ShardCounts {
  uint64_t initialized = 0;   // slices that contributor 0 has given values
  uint64_t pushes_added = 0;  // slices
  uint64_t pushes_duplicate = 0;
  uint64_t pushes_stale = 0;
  uint64_t pushes_fenced = 0;
  uint64_t push_bytes = 0;
  uint64_t pull_bytes = 0;
  uint64_t verdicts_apply = 0;
  uint64_t verdicts_skip = 0;
  uint64_t verdicts_retry = 0;
  uint64_t copied_bytes = 0;  // before updates, of what a checkpoint or a reader still held
  // Slices whose update was to be computed ahead of the verdict.
  uint64_t ahead_taken = 0;
  uint64_t ahead_dropped = 0;
  // In bounded and async; the last four on the step leader alone.
  uint64_t updates = 0;  // of slices
  StalenessCounts staleness;
  uint64_t ranges_cut = 0;
  uint64_t contributions_refused = 0;
  uint64_t checkpoint_barriers = 0;
  absl::Duration checkpoint_barrier_wait;
};

// A parameter shard without its surroundings: slices, the open step, and, on the step leader, the
// gate that decides it. A plain state machine: no threads, clock, or messages of its own. Not
// thread-safe: the service adapter (or a simulation) calls it under one lock and lets `replies` run
// after it.
//
// Calls of members answer with the codes of proto/parameter_shard.proto and of CallHeader. Time is
// CallTime and `now`; a parked call whose deadline is over is answered by the next Tick.
class Shard {
 public:
  // job: as LoadJob gives it. Before the first view every call is answered Unavailable.
  // What the resources name must outlive it.
  Shard(JobConfig job, uint32_t ordinal, ShardResources resources = {});

  // --- What the coordinator says
  // -------------------------------------------------------------------

  // A view. Older ones are ignored. A higher job_epoch starts anew from the view's start_from;
  // within an epoch members may change. InvalidArgument: the view is wrong; Unimplemented: it moves
  // slices or the step leader.
  absl::Status SetView(const ClusterView& view, absl::Time now, Replies& replies);

  // Start values from a checkpoint. InvalidArgument: no slice of this shard, or sizes do not fit.
  absl::Status StartSlice(uint32_t slice, const SliceStart& start, absl::Time now,
                          Replies& replies);

  // Of checkpoints: WatchReply's checkpoints_asked and checkpoint_ended, of the view's job_epoch.
  void FollowCheckpoints(uint64_t asked, uint64_t ended, absl::Time now, Replies& replies);

  // The job has failed: WhyFailed is answered, everything else refused.
  void Fail(const FirstCause& cause, Replies& replies);

  // The process ends: parked calls and later ones are answered Unavailable.
  void Stop(Replies& replies);

  // --- Calls of members
  // ----------------------------------------------------------------------------

  absl::StatusOr<InitializeReply> Initialize(const InitializeRequest& request, absl::Time now,
                                             Replies& replies);
  // Push: the slices of the message are in `slices`, and `request` has none; or it has them itself.
  absl::StatusOr<PushReply> Push(const PushRequest& request, absl::Span<const TensorSlice> slices);
  absl::StatusOr<PushReply> Push(const PushRequest& request) {
    return Push(request, ViewsOf(request.slices()));
  }
  void Complete(const CompleteRequest& request, CallTime time, Replies& replies,
                Done<CompleteReply> done);
  void Enter(const EnterRequest& request, CallTime time, Replies& replies, Done<EnterReply> done);
  absl::StatusOr<CloseReply> Close(const CloseRequest& request);
  absl::StatusOr<DecideReply> Decide(const DecideRequest& request, absl::Time now,
                                     Replies& replies);
  absl::StatusOr<AdvanceReply> Advance(const AdvanceRequest& request, absl::Time now,
                                       Replies& replies);
  // The answer holds pins on the slices' versions; encoding it is for after the lock.
  void Pull(const PullRequest& request, CallTime time, Replies& replies, Done<PulledVersion> done);
  void WhyFailed(const WhyFailedRequest& request, CallTime time, Replies& replies,
                 Done<WhyFailedReply> done);

  // --- What the surroundings do
  // ---------------------------------------------------------------------

  // Answers parked calls whose deadline is over: DeadlineExceeded, naming who is missing.
  void Tick(absl::Time now, Replies& replies);

  // Parked calls of all kinds. Of each member at most a few of each kind, and of its Pulls twice as
  // many as there are slices here: whoever has more is told to wait (RESOURCE_EXHAUSTED).
  size_t parked() const {
    return completes_.size() + enters_.size() + pulls_.size() + why_failed_.size();
  }

  // The earliest deadline of a parked call; InfiniteFuture if there is none.
  absl::Time NextDeadline() const;

  // Whether TakeOutbox or TakeVerdicts would give something.
  bool has_outgoing() const { return !outbox_.empty() || !to_report_.empty(); }
  bool has_requests() const { return !outbox_.empty(); }  // of these: to other shards

  // What a decided step has to do yet, where it is much and the resources can do it later; once. To
  // be run, each piece once, without the shard's lock, and OnUpdated to be told of each. Until it
  // has ended nothing of the shard may be called but OnUpdated, Pull, and what neither changes the
  // shard nor looks at slices: TakeOutbox, TakeVerdicts, Progress, and the plain state.
  std::shared_ptr<StepWork> TakeWork();
  void OnUpdated(size_t piece, const absl::Status& status, Replies& replies);

  // Updates to be computed ahead of the verdict, since the last time: where the resources can. To
  // be run soon, in this order, at any time and also never, without the shard's lock.
  std::vector<std::shared_ptr<AheadUpdate>> TakeAhead() { return std::exchange(ahead_, {}); }

  // What this shard waits for, for `parley why-stuck` (shard_waits.cc).
  std::vector<Wait> Waits(absl::Time now) const;

  // Requests to other shards since the last time.
  std::vector<ToShard> TakeOutbox();
  // The answer to a CloseRequest of the outbox.
  void OnCloseReply(uint32_t shard, const CloseRequest& request, const CloseReply& reply,
                    absl::Time now, Replies& replies);

  // The answer to an AdvanceRequest of the outbox.
  void OnAdvanceReply(uint32_t shard, const AdvanceRequest& request, absl::Time now,
                      Replies& replies);

  // Verdicts to report to the coordinator, in order, without `none`; only the step leader has some.
  std::vector<Verdict> TakeVerdicts();
  // Where the job is after all of them.
  JobProgress Progress() const;

  // Why this shard cannot go on, if so: a step would be wrong. The surroundings fail the job with
  // it.
  const std::optional<std::string>& error() const { return error_; }

  // All slices at `version`, with the optimizer's state: of the newest version, and of the one that
  // is kept for a checkpoint. Unavailable while the shard has not got there; Aborted where it is
  // past.
  absl::StatusOr<std::vector<SliceSnapshot>> Snapshot(uint64_t version);

  // nullptr before the first view.
  const Routing* routing() const { return routing_.get(); }
  std::shared_ptr<const Routing> shared_routing() const { return routing_; }
  bool ready() const { return table_ != nullptr && table_->ready(); }
  std::vector<uint32_t> slices_not_set() const;
  // What makes memory for this job_epoch's checkpoints and updates ahead (ParameterTable), once
  // there is time for it; null where there is none to make. To be called without the shard's lock:
  // a shard of many GiB that made no answer for so long would pass for dead.
  std::function<void()> TakeReservation();
  // The last decided step; in bounded and async the last named version.
  uint64_t version() const { return version_; }
  // The last decided step that this shard knows.
  uint64_t last_decided() const;
  uint32_t attempt() const { return attempt_; }  // of the open step, version() + 1
  const ShardCounts& counts() const { return counts_; }
  // The step leader's in bounded and async; else nullptr.
  const ClockGate* clock_gate() const;

 private:
  template <class Reply>
  struct Parked {
    uint64_t member = 0;
    uint64_t step = 0;  // or version
    uint32_t attempt = 0;
    absl::Time since;
    absl::Time deadline;
    uint32_t contributor = 0;  // of Enter; in bounded and async of the others too
    Done<Reply> done;
  };
  struct ParkedComplete : Parked<CompleteReply> {
    uint64_t composition = 0;
    bool at_once = false;
    std::vector<uint32_t> pulled;
  };
  struct ParkedEnter : Parked<EnterReply> {
    CallHeader header;
  };
  struct ParkedPull : Parked<PulledVersion> {
    std::vector<uint32_t> slices;
    PullRequest request;  // in bounded and async
  };

  // What there is instead of open steps in bounded and async (docs/clocked.md).
  struct Clocked {
    Clocked(const JobConfig& job, ParameterTable* parameters, const ClusterView& view)
        : table(job, parameters, view.training_samples()) {}
    ClockedTable table;
    uint64_t floor = 0;              // as the step leader says
    std::vector<uint32_t> at_floor;  // contributors, when it said so
    absl::Time since;                // of the last news of it
    // On the step leader:
    std::optional<ClockGate> gate;
    uint64_t told_floor = 0;
    std::optional<uint64_t> told_barrier;
    bool marked = false;              // that one, as a checkpoint
    std::set<uint32_t> acknowledged;  // shards that have named the barrier's version
  };

  // shard_fence.cc: who may call.
  absl::Status FenceMember(const CallHeader& header) const;  // job, member, incarnation
  absl::Status Fence(const CallHeader& header) const;        // and epochs, and that the job goes on
  absl::Status FenceLeader(const CallHeader& header) const;  // and that it is the step leader
  absl::Status FencePart(const CallHeader& header, uint32_t contributor, uint32_t part) const;
  absl::Status FenceContributor(const CallHeader& header, uint32_t contributor) const;
  // Aborted where that of the contributor, a pipeline or node group, is a later one.
  absl::Status FenceComposition(uint32_t contributor, uint64_t composition) const;
  absl::Status NotLeader() const;
  absl::Status WrongSlice(const CallHeader& header, uint32_t slice) const;

  // shard_waits.cc: of the open step, which somebody waits for.
  std::vector<WaitedFor> SendersWithoutPush() const;
  std::vector<WaitedFor> InitializersMissing() const;
  std::vector<Wait> ClockedWaits(absl::Time now) const;

  // shard_view.cc: who takes part.
  void StartEpoch(std::shared_ptr<const Routing> routing, absl::Time now, Replies& replies);
  void ChangeMembers(std::shared_ptr<const Routing> routing, absl::Time now, Replies& replies);
  std::vector<StepGate::Departure> DeparturesSince(const Routing& former) const;
  bool LeftSomething(uint32_t contributor, bool awaited) const;
  void PlaceOpenStep(const SchedulePlace& place);
  void OpenStep(uint64_t view_epoch, absl::Time now);
  std::set<uint32_t> WithoutData() const;  // contributors of the open step
  // Whether all that the job asked for is done: the step that is open then is never decided.
  bool HasEnded() const;
  const Routing& open_view() const { return *views_.front(); }
  std::vector<const Routing*> open_routings() const;
  void AnswerEnters(Replies& replies);

  // shard.cc
  void OnSliceStarted(absl::Time now, Replies& replies);
  void SetError(const absl::Status& status, Replies& replies);
  void RefuseParked(const absl::Status& status, Replies& replies);
  absl::Status Failed() const;

  // Pushes what the call carries.
  absl::Status PushCarried(const CompleteRequest& request);
  // The verdict as the answer to one contributor, with the values that it wants.
  absl::StatusOr<CompleteReply> AnswerTo(uint32_t contributor, uint64_t composition,
                                         const Verdict& verdict, absl::Span<const uint32_t> pulled);
  // Whether the leader's own slices have what the part says it has pushed, and nothing else:
  // Unavailable where its Complete has overtaken a push.
  absl::Status CheckPushed(const CompleteRequest& request) const;

  // shard_parked.cc: bounds, so that a member that calls without end grows nothing.
  absl::Status CheckSize(const CompleteRequest& request) const;
  absl::Status RoomForComplete(uint64_t member) const;
  absl::Status RoomForEnter(uint64_t member) const;
  absl::Status RoomForPull(uint64_t member) const;
  absl::Status RoomForWhyFailed(uint64_t member) const;

  // shard_push.cc, shard_pull.cc
  const PartRange* FindPart(uint32_t slice, uint32_t contributor, uint32_t part) const;
  absl::Status CheckPush(const PushRequest& request, absl::Span<const TensorSlice> slices) const;
  // Something has come for the slice; a step has been carried out, and another one begins.
  void UpdateAhead(uint32_t id, const TableSlice& slice);
  void UpdateAheadOfGradients();
  void DropAttempt();
  // Of which slices it asks.
  absl::Status CheckPulled(const CallHeader& header, absl::Span<const uint32_t> slices) const;
  // Whether these slices have got there; all of the shard, where they are none.
  bool IsCarriedOut(uint64_t version, absl::Span<const uint32_t> slices) const;
  absl::StatusOr<PulledVersion> PinSlices(uint64_t version, absl::Span<const uint32_t> slices);
  void AnswerPulls(Replies& replies);

  // shard_decide.cc
  CallHeader OwnHeader() const;  // used by shard_clocked.cc too
  void Do(StepGate::Output output, absl::Time now, Replies& replies);
  absl::StatusOr<CloseReply> ReduceOwn(const CloseRequest& request);
  void OrderEvaluation(uint64_t epochs_before, Verdict& verdict) const;
  void KeepForEvaluation(const EvaluationOrder& order);
  absl::StatusOr<std::vector<SliceSnapshot>> SnapshotNewest();
  bool MarkForCheckpoint(uint64_t version);  // on the step leader
  absl::Status KeepForCheckpoint();
  absl::Status CarryOut(const Verdict& verdict, absl::Time now, Replies& replies);
  absl::Status EndStep(const Verdict& verdict);  // all of it is carried out
  void AnswerCompletes(const Verdict& verdict, Replies& replies);
  std::string WhatIsMissing(absl::Time now) const;

  // shard_clocked.cc: bounded and async, who may go on.
  void StartClocks(absl::Time now);
  void CompleteClock(const CompleteRequest& request, CallTime time, Replies& replies,
                     Done<CompleteReply> done);
  void ChangeClockedMembers(absl::Time now, Replies& replies);
  void SettleClocks(absl::Time now, Replies& replies);
  void EnterParked(Replies& replies);
  void TellFloor(absl::Time now, Replies& replies);
  void ApplyAdvance(const AdvanceRequest& request, absl::Time now, Replies& replies);
  void AnswerClocked(Replies& replies);
  std::map<uint32_t, uint32_t> Present() const;  // contributor -> attempt
  std::string WhoHoldsUp(absl::Time now) const;

  static double ScaleOf(const PushRequest& request) {
    return request.has_scale() ? request.scale() : 1;
  }

  // shard_clocked_calls.cc: bounded and async, pushes and pulls.
  absl::StatusOr<PushReply> PushClocked(const PushRequest& request,
                                        absl::Span<const TensorSlice> slices);
  absl::Status CheckClockedPush(const PushRequest& request,
                                absl::Span<const TensorSlice> slices) const;
  absl::Status CheckAttempt(uint32_t contributor, uint32_t attempt) const;
  void PullClocked(const PullRequest& request, CallTime time, Replies& replies,
                   Done<PulledVersion> done);
  bool MayPull(const PullRequest& request) const;
  absl::StatusOr<PulledVersion> PinClocked(const PullRequest& request);
  void AnswerClockedPulls(Replies& replies);
  bool TakesBuffersOf(uint32_t contributor) const;

  // Constant after construction.
  const JobConfig job_;
  const ShardResources resources_;
  const uint32_t ordinal_;
  const bool updates_ahead_;

  std::shared_ptr<const Routing> routing_;  // the newest view: fences calls
  // From the one by which the open step was divided, through all its attempts, to the newest. Those
  // between wait for a verdict that names one of them.
  std::deque<std::shared_ptr<const Routing>> views_;
  // The first of views_ is the very view by which the step leader opened the step. False where this
  // shard never had that one, and goes by the next newer one.
  bool opened_as_named_ = false;
  std::unique_ptr<ParameterTable> table_;  // from the first view on
  bool reserved_ = false;                  // TakeReservation, in this epoch
  std::optional<StepGate> gate_;           // on the step leader
  std::unique_ptr<Clocked> clocked_;       // in bounded and async; then there is no gate_
  DecidedProgress decided_;                // on the step leader

  uint64_t version_ = 0;
  uint32_t attempt_ = 0;
  // Of step version_: what is left of it, and the verdict; nullptr where all is done.
  std::shared_ptr<StepWork> work_;
  bool work_taken_ = false;
  Verdict at_work_;
  std::vector<std::shared_ptr<AheadUpdate>> ahead_;  // made, and not taken yet
  bool closed_ = false;                              // the open attempt's contributors are fixed
  std::string close_request_;  // what was closed, and its answer: for repetitions
  CloseReply close_reply_;
  absl::Time opened_;  // when the open step or attempt began

  std::optional<EvaluationOrder> evaluation_;  // the last one
  std::vector<PinnedBuffer> kept_;             // the slices at its version, until the next one

  std::optional<CheckpointMarks> marks_;  // on the step leader
  uint64_t checkpoint_version_ = 0;       // 0: none is kept
  std::vector<SliceSnapshot> checkpoint_;

  std::deque<Verdict> verdicts_;  // the last ones, for repeated Completes
  // What one call has led to; its adapter takes both after it (LockedShard, Outgoing).
  std::vector<ToShard> outbox_;
  std::vector<Verdict> to_report_;

  ParkedCalls<ParkedComplete> completes_;
  ParkedCalls<ParkedEnter> enters_;
  ParkedCalls<ParkedPull> pulls_;
  ParkedCalls<Parked<WhyFailedReply>> why_failed_;

  std::optional<std::string> error_;
  std::optional<FirstCause> cause_;
  bool stopped_ = false;
  ShardCounts counts_;  // never fall
  ShardCounts former_;  // as they were when this job_epoch, and with it gate and table, began
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_SHARD_H_
