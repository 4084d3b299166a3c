#ifndef PARLEY_CLIENT_WORKER_SESSION_H_
#define PARLEY_CLIENT_WORKER_SESSION_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/activity.h"
#include "client/answer_queue.h"
#include "client/clock_exchange.h"
#include "client/data_plan.h"
#include "client/evaluation_reports.h"
#include "client/lease_plan.h"
#include "client/membership.h"
#include "client/newest_state.h"
#include "client/parameter_puller.h"
#include "client/reduce/reducer.h"
#include "client/runtime.h"
#include "client/service_calls.h"
#include "client/session.h"
#include "client/slice_layout.h"
#include "client/step_exchange.h"
#include "client/tensor_arena.h"
#include "common/job/contributor_places.h"
#include "common/job_state.h"
#include "common/shared_memory/segment_heap.h"

namespace parley {

// The Session of a worker. It owns the membership, the buffers and the calls; threads use it as
// Session says. What other threads learn (answers, states of the job, its
// failure) comes through the AnswerQueue, so that everything without a lock here belongs to the
// training thread.
//
// A worker that the job has gone on without (docs/membership.md) and that is no member any more
// joins anew, inside whichever verb finds it out: all that belongs to one membership is made again,
// the buffers stay. Where the job goes back to a checkpoint, a new job_epoch, the same is done with
// all that belongs to one epoch, and the membership stays. One that is only late asks again where
// the job is.
class WorkerSession final : public Session {
 public:
  WorkerSession(Session::Options options, Connector& connector);
  ~WorkerSession() override;

  // First of all, once.
  absl::Status JoinJob();

  uint32_t ordinal() const override {
    return PartPlaceOf(options_.role, member_ordinal(), shape()).contributor;
  }
  uint64_t memberships() const override { return memberships_; }
  uint32_t member_ordinal() const override { return membership()->ordinal(); }
  size_t processes_here() const override { return ProcessesHere().size(); }
  size_t local_ordinal() const override;
  absl::Status Register(std::vector<TensorSpec> tensors, uint64_t training_samples,
                        uint64_t test_samples) override;
  absl::Status RegisterPart(std::vector<TensorSpec> tensors, std::vector<TensorSpec> model,
                            uint64_t training_samples, uint64_t test_samples) override;
  bool must_initialize() const override;
  absl::Status Initialize(absl::Span<const absl::Span<const std::byte>> values) override;
  absl::Span<const std::byte> parameter(size_t tensor) const override {
    return parameters_->tensor(tensor);
  }
  std::vector<ShownPart> ShownParts(size_t tensor, size_t begin, size_t end) const override;
  std::shared_ptr<const void> parameter_memory() const override { return parameters_->owner(); }
  absl::Span<std::byte> gradient(size_t tensor) override { return gradients_->tensor(tensor); }
  uint64_t gradient_memory() const override { return gradient_memory_; }
  DataType gradients_on_wire() const override;
  uint64_t version() const override {
    if (leases_.has_value()) return leases_->version();
    return data_.has_value() ? data_->version() : 0;
  }
  uint64_t data_epochs() const override {
    if (leases_.has_value()) return leases_->data_epochs();
    return data_.has_value() ? data_->position().epoch() : 0;
  }
  absl::Status Pull() override { return PullFully(/*ahead=*/false); }
  absl::Status PullAhead() override { return PullFully(/*ahead=*/true); }
  absl::Status AwaitParameter(size_t tensor) override {
    return AwaitPulled(ParameterPuller::Some{tensor});
  }
  absl::Status AwaitParameterUntil(size_t tensor, size_t bytes) override {
    return AwaitPulled(ParameterPuller::Some{tensor, bytes});
  }
  std::optional<StepPlan> NextStep() override;
  std::vector<StepPlan> Ahead(size_t count) const override;
  absl::Status Push(size_t tensor) override;
  absl::Status PushNonzero(size_t tensor, std::string_view nonzero) override;
  absl::Status PushUntil(size_t tensor, size_t bytes) override;
  Pipeline pipeline() const override { return pipeline_; }
  absl::Status AwaitPeers(const std::string& what, const std::function<bool()>& done) override;
  void Wake() override;
  absl::StatusOr<Verdict> Abandon(const absl::Status& why) override;
  absl::Status PullVersion(uint64_t version) override;
  absl::StatusOr<Verdict> Complete(double loss_sum) override;
  absl::StatusOr<std::optional<PendingEvaluation>> PullEvaluation() override;
  absl::StatusOr<bool> ReportEvaluation(const Evaluation& part) override;
  absl::StatusOr<bool> Finish(const std::vector<PhaseSeconds>& seconds) override;
  bool drained() const override { return drained_; }
  bool finished() const override { return left_; }
  void Progress() override;
  FirstCause Fail(const std::string& reason, bool preempted) override;
  void Preempt(const std::string& reason, absl::Duration time) override;
  void JoinNoMore(const std::string& reason) override;
  std::optional<FirstCause> failure() const override { return membership()->failure(); }
  Traffic traffic() const override;
  Epochs epochs() const override;
  void TellWaits(WaitsReply& reply) const override { activity_->Tell(reply); }

 private:
  std::shared_ptr<Membership> membership() const;
  // Of one that the job has gone on without: why it is not to join anew, if it is not.
  std::optional<FirstCause> OwnEnd() const;
  // This process was told to end within that time.
  void NoteEnd(const std::string& reason, absl::Duration time);
  bool is_stage() const { return options_.role == STAGE; }
  ContributorShape shape() const { return ShapeOf(options_.job.cluster()); }
  absl::Status TakeTensors(std::vector<TensorSpec> tensors, std::vector<TensorSpec> model,
                           uint64_t training_samples, uint64_t test_samples);

  // Runs answers until done() holds. While it waits the process is not to be blamed, what it waits
  // for is (Membership::Waits). Errors: the job's failure, that it went
  // back, or that `what` did not come.
  absl::Status Await(const std::string& what, const std::function<bool()>& done);
  std::string WhatIsMissing();
  // It waits for others.
  void Waits(absl::Time since);

  // worker_session_place.cc: this worker's place in the job.
  // Whether `error` means that the job goes on without this worker, or has gone back to a
  // checkpoint. May wait to find out. Where the job has failed, `error` becomes its first cause.
  bool HasLostTrack(absl::Status& error);
  // In which the coordinator says where the job is, or counts as lost.
  absl::Duration TimeToHear() const;
  // After HasLostTrack: takes part again, as another member or as the same one in the newest
  // job_epoch, until it has succeeded. What was to be sent is dropped;
  // the next Pull enters.
  absl::Status BeginAnew();
  // Whether the coordinator has told of a later job_epoch than this worker's calls are of.
  bool JobWentBack() const;
  absl::Status WentBack() const;
  void MakeCalls();
  // No call is open any more, no answer comes, and nobody reads the gradients.
  void DropCalls();
  // Shards keep what was lent to them, and the session has other memory at the same addresses.
  void LeaveGradients();
  absl::Status TakePlace();  // of the membership that JoinJob has made
  absl::Status RegisterModel();
  absl::Status FollowView();  // as soon as it names this worker
  absl::Status AdoptView();
  // Those of versions after the one that the job has gone back to: they will be other ones.
  void ForgetEvaluations();
  absl::Status Enter();  // unless it is in; waits for the start values
  // The job has gone on without this worker, which is a member still: the next Pull enters again.
  void LoseTrack();
  bool HasPlace() const;  // in the view
  // The initial values, if it is this worker's to give them and it has them in its parameters.
  absl::Status SendInitialValues();
  // How far that has got; shared with the answers, which can come after an error has ended it.
  struct InitialValues {
    std::vector<size_t> next;  // slice to send, by shard
    size_t open = 0;
    bool abandoned = false;
    absl::Status error;
  };
  void InitializeNext(uint32_t shard, const std::shared_ptr<InitialValues>& progress);
  const WatchReply& watched() const { return **watched_; }  // until the next one comes
  const ClusterView& view() const { return watched().view(); }

  // worker_session_peers.cc: the processes behind one contributor, a pipeline or node group.
  const Contributor* OwnContributor() const;  // of the newest view; null: it has none
  // Member ordinals of this one's role on this machine, itself included; of the newest view.
  std::vector<uint32_t> ProcessesHere() const;
  // Whether somebody stands at each of its places.
  bool IsWhole() const;
  Pipeline ViewedPipeline() const;
  // Whether it is not the one any more that AdoptView has seen.
  bool CompositionChanged() const;
  bool GivesInitialValues(const TensorSpec& tensor) const;
  // In a node group: has the reducer find the other ranks of the composition that AdoptView has
  // seen.
  absl::Status FormGroup();
  // Where the job is no more where this process thought it was: takes part again, and OK.
  absl::Status FollowJob(absl::Status error);

  // worker_session_clocked.cc: bounded and async.
  void AdoptClocks();
  ParameterPuller::What WhatToPull() const;
  void FollowLease(uint64_t version, const Lease& lease);
  std::optional<StepPlan> NextClock();
  absl::StatusOr<Verdict> CompleteClockOnce(const Share& share);

  // Until it has succeeded. ahead: as PullAhead.
  absl::Status PullFully(bool ahead);
  absl::Status PullOnce(bool ahead);
  // Of one version, unless the parameters hold it. OutOfRange: the job has passed it.
  absl::Status PullValues(const ParameterPuller::What& what, bool ahead = false);
  // Of what PullAhead has begun: waits for one tensor, or for all that is on its way. After an
  // error the step is void, until the next pull.
  absl::Status AwaitPulled(std::optional<ParameterPuller::Some> some);
  // Of the verbs that push.
  absl::Status BeforePush();
  // Whether a verdict need not wait for the shards to carry it out, since values will be awaited
  // before gradients are written. The ranks of a node group add up in each other's time.
  bool VerdictAtOnce() const { return pulls_ahead_ && !skips_pulls_ && reducer_ == nullptr; }
  // The tensor's, or all, values have come: its gradient is going to be written.
  void TakeBack(std::optional<size_t> tensor);
  bool IsRead() const {
    return std::find(is_read_.begin(), is_read_.end(), true) != is_read_.end();
  }
  ParameterPuller::Wait AwaitingPull(const ParameterPuller::What& what);
  // What the puller has begun, or some of it. Begins it anew where a shard writes it meanwhile.
  absl::Status AwaitValues(const ParameterPuller::What& what,
                           std::optional<ParameterPuller::Some> some);
  std::optional<PendingEvaluation> DueEvaluation() const;
  absl::StatusOr<Verdict> CompleteOnce(const Share& share);
  // False: there are steps to do.
  absl::StatusOr<bool> FinishOnce(const std::vector<PhaseSeconds>& seconds);
  bool HasStepsToDo() const;
  // The coordinator has told this worker to go, which has no open step: it goes. An error: the job
  // has failed.
  absl::Status Depart();
  // The same in a verb that cannot go on then: CANCELLED, or that error.
  absl::Status DepartInstead();
  // Until at most so many are open.
  absl::Status AwaitReports(size_t most);

  // Constant after construction.
  const Session::Options options_;
  Connector& connector_;
  const absl::Duration liveness_;
  const absl::Duration patience_;
  const std::shared_ptr<Runtime> runtime_;
  const std::shared_ptr<Activity> activity_;

  // Of the present membership.
  std::shared_ptr<AnswerQueue> queue_;
  absl::Mutex wake_mu_;
  std::shared_ptr<AnswerQueue> woken_ ABSL_GUARDED_BY(wake_mu_);  // queue_, for Wake
  std::shared_ptr<SharedJobState> watched_;         // the newest taken; shared with the answers
  std::shared_ptr<NewestState> newest_;             // of the listener
  std::shared_ptr<std::atomic<bool>> is_expelled_;  // set by the listener
  mutable absl::Mutex membership_mu_;
  std::shared_ptr<Membership> membership_ ABSL_GUARDED_BY(membership_mu_);
  // The first reason to end that this process was told; from then on no membership takes the
  // place of membership_.
  std::string preempted_by_ ABSL_GUARDED_BY(membership_mu_);
  absl::Duration preempted_for_ ABSL_GUARDED_BY(membership_mu_);  // the shortest
  // membership_ has taken a former one's place, and no view has named it yet.
  bool is_apart_ ABSL_GUARDED_BY(membership_mu_) = false;

  // Of the present job_epoch.
  std::shared_ptr<Timers> timers_;  // of calls_
  std::unique_ptr<ServiceCalls> calls_;
  std::optional<SliceLayout> layout_;
  std::optional<ParameterPuller> puller_;
  std::unique_ptr<Reducer> reducer_;  // in a node group; from Register on
  std::unique_ptr<StepExchange> exchange_;
  std::unique_ptr<ClockExchange> clock_exchange_;  // in bounded and async

  // Constant after Register.
  bool registered_ = false;
  std::vector<TensorSpec> tensors_;  // of this process
  std::vector<TensorSpec> model_;    // of all
  uint64_t training_samples_ = 0;
  uint64_t test_samples_ = 0;
  std::unique_ptr<SegmentHeap> own_memory_;  // in a node group whose connector has none to share
  std::unique_ptr<ParameterArena> parameters_;
  std::optional<TensorArena> gradients_;
  uint64_t gradient_memory_ = 0;  // how often it was left to readers

  // The training thread's.
  uint64_t memberships_ = 0;
  uint64_t job_epoch_ = 0;  // of what follows; calls_ may be of a later one for a moment
  std::optional<DataPlan> data_;
  std::optional<LeasePlan> leases_;  // in bounded and async: instead of data_
  bool entered_ = false;             // data_ says where the job is
  Pipeline pipeline_;                // as AdoptView has seen it
  bool has_pulled_ = false;
  std::optional<uint64_t> held_;  // the version in the parameters, whole
  bool pulls_ahead_ = false;      // the last time, and so the next one, as it seems
  bool skips_pulls_ = false;      // it has begun a step without one
  // Gradients that shards may still read, since the verdict came at once: those whose tensors'
  // values, which come after that, are not here yet.
  std::vector<bool> is_read_;
  std::optional<uint64_t> ahead_;  // the version that PullAhead has begun to bring
  absl::Status pull_error_;        // of what it had begun
  // The same, for Push: gradients of such values are not sent.
  std::atomic<bool> is_void_ = false;
  std::optional<EvaluationOrder> evaluation_;  // the last one ordered
  // What of it is done, or can be done no more.
  struct EvaluatedPart {
    uint64_t version = 0;
    uint32_t ordinal = 0;
  } evaluated_;
  EvaluationReports reports_;
  uint32_t attempt_ = 0;          // of the step that Enter named; 0 for later ones; of all clocks
  std::optional<StepPlan> plan_;  // of the open step
  bool holds_initial_values_ = false;  // in the parameters, until the first Pull
  bool left_ = false;
  bool drained_ = false;  // it has left, as it was told to

  mutable absl::Mutex traffic_mu_;
  Traffic traffic_ ABSL_GUARDED_BY(traffic_mu_);
};

}  // namespace parley

#endif  // PARLEY_CLIENT_WORKER_SESSION_H_
