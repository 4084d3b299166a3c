#ifndef PARLEY_CLIENT_SESSION_H_
#define PARLEY_CLIENT_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/connector.h"
#include "client/reduce/reducer.h"
#include "client/runtime.h"
#include "client/step_plan.h"
#include "client/trace.h"
#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"
#include "proto/waits.pb.h"

namespace parley {

// What a training loop needs of the service. A worker's life:
//
//   Join -> Register -> [Initialize] -> Pull -> { NextStep, Push..., Complete, Pull }... -> Finish
//
// With a test set, after each Pull: { PullEvaluation, ReportEvaluation, Pull } until none is due.
//
// When a shard is lost the job goes back to its last checkpoint, and the session with it, inside
// whichever method finds it out: Complete says STALE, Finish says false, the others go on with what
// there is now. Then version() has fallen, and the next plan is of an earlier step: so keep nothing
// of one's own that depends on the step but what follows from the plan.
//
// One thread calls these methods in this order (the training thread). From any thread: Push,
// PushNonzero and PushUntil, by the threads of backward; Wake, Preempt, failure, traffic,
// TellWaits, ordinal and member_ordinal. Retries, and attempts of a step that must be sent again,
// happen inside.
//
// Tensors are named by their index in what was registered; an index that is too high is
// InvalidArgument where a status is returned, and else must not be given. Bytes are row-major,
// little-endian, without padding.
//
// Every wait ends. Each method that returns a status may end with one of these, and a comment at a
// method has what is its own:
//   Aborted             the job has failed: the text is the first cause's, failure() has the cause.
//                       Where that has none: this worker was refused, and the coordinator does not
//                       say where the job is
//   DeadlineExceeded    what was waited for has not come within the job's stall_timeout and
//                       autonomy, and the coordinator is not heard; the text says who is missing
//   Cancelled           the job has sent this worker away: drained() is true, and it is no failure
//   FailedPrecondition  called before Register, or not in the order above; or the job has finished
//                       and this worker came too late, or another process has this stage's place
//   Internal            a peer has said what cannot be
//   ResourceExhausted   no memory for the parameters
// and, where it must join anew, with those of Join. Where a method does not say how to go on after
// an error, there is only Fail, and the destructor.
//
// In bounded and async (docs/clocked.md) a step is a clock of this worker alone: Pull brings the
// newest values that its bound allows, or after the end of a data epoch the version that all share;
// Complete waits for the next samples, and its verdict is of this worker's contribution (SKIP with
// no shares: a shard refused it as too stale, or it had no samples).
//
// Memory. The library owns the buffers: gradient(i) is written by the caller between NextStep and
// Push(i) and must not be touched from Push(i) until Complete returns, or after PullAhead until
// AwaitParameter(i) has (a buffer's: PullAhead itself); parameter(i) is read-only (it can be a
// shard's own memory: to write there ends the process) and changes only inside Complete, Pull and
// PullEvaluation: from a call of Complete to the next Pull it says nothing. Both keep their address
// from Register to the end of the session. They are 64-byte aligned.
class Session {
 public:
  struct Options {
    JobConfig job;  // as LoadJob (common/job/job_file.h) gives it
    // WORKER, or STAGE: one of the processes that have a part each of a model (docs/pipelines.md).
    Role role = WORKER;
    std::string coordinator;  // host:port, or file:PATH
    // host:port where this process, and no other, serves its health; told to others. It may be
    // empty: messages name this machine and the pid then, and `parley why-stuck` cannot ask this
    // process. Needed in pipelines and node groups, whose processes reach each other by it.
    std::string address;
    // host:port of this process's /metrics; empty: it has none.
    std::string metrics_address;
    absl::Duration join_timeout = absl::Seconds(60);  // for a coordinator that is not up yet
    // Pushes that a shard has not acknowledged, in bytes and for each shard. More wait as they are,
    // in the gradients' own memory, so that a slow shard slows this worker and does not make it
    // grow. In bounded and async what goes to a shard of another machine is a copy.
    size_t push_window_bytes = 64 << 20;
    std::shared_ptr<Runtime> runtime = RealRuntime();  // another one in tests and simulations
    // Takes down each wait of the training thread and each call; none where it is null.
    std::shared_ptr<Trace> trace;
    // In a node group, for who adds up its gradients in another way: gets the session's own
    // reducer, and gives the one that is used; the new one is the session's.
    std::function<std::unique_ptr<Reducer>(std::unique_ptr<Reducer>)> reduce_by;
    // Told what who looks after this process should know of its way to the coordinator, a line of
    // its log each time: that it has not been taken in, and why; that the coordinator is lost, or
    // answers again. On a thread of the session's; must not wait. Empty: nobody is told.
    std::function<void(const std::string& news)> coordinator_news;
    // For who ends a process whose training thread does not come back to the session (a device, a
    // disk that answers no more). Both are called at once, whatever that thread does, on a thread
    // of the session's; must not wait. Empty: nobody is told.
    // The job has failed: each method says so from now on.
    std::function<void(const FirstCause& cause)> on_failed;
    // The job goes on without this worker. The training thread joins anew when it finds out; until
    // then `still` is true, whoever asks, after the session too.
    std::function<void(std::function<bool()> still)> on_expelled;
    // Where the coordinator is now: host:port. Empty: `coordinator` says it. May take as long as it
    // will, and be at it still when the session has gone.
    std::function<absl::StatusOr<std::string>()> resolve;
  };

  // Joins the job, waiting up to join_timeout for a coordinator; `connector` must outlive the
  // session. NotFound: the coordinator is of another job. InvalidArgument: it runs another job
  // file, or `coordinator` is no address. FailedPrecondition: the job has ended. ResourceExhausted:
  // all places are taken, and the job waits for nobody (min_workers is `workers`, and max_restarts
  // 0); else a place is waited for. Unauthenticated: with `tls: OFF`, the connector's token is not
  // the job's. DeadlineExceeded: nobody took it in; with the address, and how long it was tried.
  static absl::StatusOr<std::unique_ptr<Session>> Join(Options options, Connector& connector);
  // Ends its threads and calls. Where Finish has not said true the job misses this worker when its
  // lease has ended; of a failed job it takes leave.
  virtual ~Session() = default;

  // Which contributor this worker is, or this stage or rank of a node group is of.
  virtual uint32_t ordinal() const = 0;
  // How often it has joined: another time where the job went on without it, since its lease had
  // ended. The training thread.
  virtual uint64_t memberships() const { return 1; }
  // Among the members of its role.
  virtual uint32_t member_ordinal() const { return ordinal(); }
  // After Register: how many of the job's processes of this one's role take part on this machine
  // now (those that gave the same host name), this one included. For who shares out its cores.
  virtual size_t processes_here() const { return 1; }
  // Which of those this process is, from 0, in the order of their member_ordinal: for who takes a
  // GPU, or cores, of its own ("local rank"). It may change when others have come or gone.
  virtual size_t local_ordinal() const { return 0; }

  // Says what is trained and how many samples there are (test_samples 0: no evaluation), and waits
  // until all members of the job have joined. Once. Trained tensors are F32 or F64, buffers any
  // type. InvalidArgument where other workers said something else, there is no tensor or no
  // training sample, or a tensor has no name, no elements, another tensor's name or no type that it
  // may have.
  virtual absl::Status Register(std::vector<TensorSpec> tensors, uint64_t training_samples,
                                uint64_t test_samples) = 0;

  // In a job with pipelines, instead of Register: `tensors` are those that this process pulls and
  // pushes, in the order in which it numbers them (a worker: none), and `model` is the whole model,
  // with the stages of each tensor, alike in all processes. The codes of Register;
  // FailedPrecondition: the job has no stages.
  virtual absl::Status RegisterPart(std::vector<TensorSpec> tensors, std::vector<TensorSpec> model,
                                    uint64_t training_samples, uint64_t test_samples);

  // After Register: whether this worker must give initial values: those of a job that starts from
  // no checkpoint must, until their first Pull. The first ones of contributor 0 are what counts.
  virtual bool must_initialize() const = 0;

  // values[i]: the bytes of tensor i as registered; copied. Of a tensor that several stages have,
  // the first one's count. Waits where this is contributor 0, whose values are sent.
  // InvalidArgument: another number of tensors, or of bytes of one.
  virtual absl::Status Initialize(absl::Span<const absl::Span<const std::byte>> values) = 0;

  // Values of tensor i at the version last pulled, to train on or to evaluate, in its dtype and
  // shape. From Register on; what it points to is said above (Memory).
  virtual absl::Span<const std::byte> parameter(size_t tensor) const = 0;

  // A part of parameter(tensor) that is in a shard's memory, which this process only reads: the
  // same bytes at another address, which stays theirs while `owner` is kept, as those of
  // parameter(...) need not. For a device that copies from there; whoever pins it keeps the owner.
  struct ShownPart {
    size_t begin = 0;  // in the tensor, in bytes
    absl::Span<const std::byte> bytes;
    std::shared_ptr<const void> owner;  // of the memory
  };
  // Those that begin in bytes begin .. end, in order. What is not in one is in memory of the
  // session's own, if anything.
  virtual std::vector<ShownPart> ShownParts(size_t tensor, size_t begin, size_t end) const {
    (void)tensor, (void)begin, (void)end;
    return {};
  }

  // Keeps the memory of parameter(...), from Register on, for one who reads the last values after
  // the session's end.
  virtual std::shared_ptr<const void> parameter_memory() const = 0;

  // Where the gradient of tensor i goes (the mean over the samples of the step's plan), in the
  // tensor's dtype and shape. For a buffer: its value after the step. Shards on this machine read
  // it there: between Push (of its beginning: PushUntil) and the end of Complete it must not be
  // written; by one who uses PullAhead, until AwaitParameter of that tensor (of a buffer
  // PullAhead), or Pull, has brought the next values. In a node group it may hold sums of the
  // ranks' then, instead of what it did.
  virtual absl::Span<std::byte> gradient(size_t tensor) = 0;

  // Rises where there is other memory at the addresses of gradient(...): since shards may have to
  // read yet what was lent to them, when this worker takes part in the job anew, values do not come
  // that were pulled ahead, or a step begins without a pull. For who has pinned that memory for a
  // device, which goes on with the pages that were there.
  virtual uint64_t gradient_memory() const { return 0; }

  // What float32 gradients are rounded to on their way to all of the shards, as things stand, so
  // that more of them need not be written there; DATA_TYPE_UNSPECIFIED: they are not, or not for
  // all.
  virtual DataType gradients_on_wire() const { return DATA_TYPE_UNSPECIFIED; }

  // The last decided step, as far as this worker is: the version that Pull brings. It falls where
  // the job goes back.
  virtual uint64_t version() const = 0;
  // How many data epochs are used up by the steps until then.
  virtual uint64_t data_epochs() const = 0;

  // Waits for version() and brings it into parameter(...). The first one, and the first after
  // STALE, asks the step leader where the job is, and takes this worker's place in it.
  virtual absl::Status Pull() = 0;

  // As Pull, but waits for the buffers only: parameter(i) of another tensor may be read once
  // AwaitParameter(i) has returned OK. So forward begins while the last layers' values are on their
  // way, and NextStep may be called. As Pull: the first time, in bounded and async, and with backup
  // workers.
  virtual absl::Status PullAhead() { return Pull(); }

  // After PullAhead: waits until parameter(tensor) is here. An error: it cannot come, and what is
  // computed now will not count: gradients are not sent, and Complete says what has become of the
  // step (STALE, where the job has gone on or back). The training thread.
  virtual absl::Status AwaitParameter(size_t tensor) {
    (void)tensor;
    return absl::OkStatus();
  }
  // The same of the first `bytes` bytes of it, for who takes a large one away piece by piece. Its
  // gradient may be written when all of it is here.
  virtual absl::Status AwaitParameterUntil(size_t tensor, size_t bytes) {
    (void)bytes;
    return AwaitParameter(tensor);
  }

  // What this worker does in the next step, the same until Complete; nullopt when the job's steps
  // are done, or the job wants this worker no more: Finish tells. Also before the first Pull, and
  // after STALE and ReportEvaluation until the next one: so pull after each. No communication.
  virtual std::optional<StepPlan> NextStep() = 0;

  // The plans of the next steps (at most `count`, in bounded and async at most one), the one that
  // NextStep gives first: for reading data ahead. They hold as long as every contributor counts in
  // every step; compare StepPlan::ranges.
  virtual std::vector<StepPlan> Ahead(size_t count) const = 0;

  // gradient(i) is complete: starts to send it, with its weight; in a node group, as soon as the
  // other ranks have theirs, the sum of what this rank sends for all. Each tensor at most once a
  // step; thread-safe; waits for nobody. Tensors not pushed when Complete is called count as
  // `none`, and so do all of a step without samples (with `reduction: SUM` in sync these count).
  // FailedPrecondition: no step is open, or the tensor was pushed in it. InvalidArgument: there is
  // no such tensor.
  virtual absl::Status Push(size_t tensor) = 0;
  // As Push, where the caller knows which parts of gradient(i) are zeros, as most of an embedding's
  // is: bit b % 8 of nonzero[b / 8] may be 0 only where elements 1024 b ... 1024 b + 1023 are all
  // +0, which they have to be in memory, too. A bit for each such block of the tensor, the last
  // byte filled up with 0. Where gradients go as messages nobody looks for them then (Push finds
  // them out by itself), and a shard on this machine that updates ahead need not read them. The
  // codes of Push; InvalidArgument: it is not of the tensor's size, or the tensor is a buffer. In
  // bounded and async, and in node groups, it is Push.
  virtual absl::Status PushNonzero(size_t tensor, std::string_view nonzero) {
    (void)nonzero;
    return Push(tensor);
  }
  // The first `bytes` bytes of gradient(i) are complete, and may be sent before the rest is: in
  // slices, as soon as a message to their shard is full (bucket_kib). For who makes a large one
  // piece by piece; as often as wanted, one thread at a time for each tensor. Push(i) must follow
  // in the step. The codes of Push. In bounded and async, and in node groups, nothing goes before
  // Push.
  virtual absl::Status PushUntil(size_t tensor, size_t bytes) {
    (void)tensor, (void)bytes;
    return absl::OkStatus();
  }

  // The pipeline, or node group, that this process is in.
  struct Pipeline {
    // Another one whenever a process has taken another's place in it: what its processes tell each
    // other is of one composition.
    uint64_t composition = 0;
    std::vector<Member> members;  // the worker, then its stages; or by rank; empty: it is alone
    uint32_t part = 0;            // of this process
  };
  virtual Pipeline pipeline() const { return {}; }

  // Waits for the other processes of the pipeline or node group, until done(), which is looked at
  // first and whenever Wake was called. `what`: for the error's text. OutOfRange: the job has
  // finished. Another error (Aborted: a process has another's place): what was waited for cannot
  // come any more; say so to Abandon. The training thread.
  virtual absl::Status AwaitPeers(const std::string& what, const std::function<bool()>& done);
  virtual void Wake() {}  // any thread

  // In place of Complete, or outside of a step: what this process was doing for its pipeline cannot
  // be ended, with the error that AwaitPeers gave. STALE: the pipeline has lost a process, or the
  // job has gone back, and this one has its place in what goes on now; Pull and go on as after any
  // step. Else the error.
  virtual absl::StatusOr<Verdict> Abandon(const absl::Status& why) { return why; }

  // Brings a version that the shards keep for an evaluation into parameter(...), where the worker
  // of this stage says that it is due. OutOfRange: they keep it no more. Pull afterwards, whatever
  // comes.
  virtual absl::Status PullVersion(uint64_t version);

  // Waits until all shards have this worker's gradients, tells the step leader, and returns the
  // verdict (APPLY or SKIP). loss_sum: sum of the samples' losses, not their mean; STALE has
  // nothing but step and attempt. FailedPrecondition: no step is open, or of a tensor only the
  // beginning was pushed (PushUntil), which Push can mend. Outcome STALE: the job has
  // gone on without this step of this worker. Either it was late in a job with backup workers, or
  // its lease had ended (it was stopped, or cut off), and it has joined anew, as perhaps another
  // ordinal; or the job has gone back to a checkpoint. Pull and go on as after any step.
  virtual absl::StatusOr<Verdict> Complete(double loss_sum) = 0;

  // This worker's part in the evaluation of one version.
  struct PendingEvaluation {
    uint64_t version = 0;
    uint64_t epoch = 0;   // data epochs done or begun, from 1
    SampleRange samples;  // of the test set; not empty
  };
  // The evaluation that waits for this worker's part, with its version in parameter(...). The job
  // asks for one whenever a data epoch is used up, and at its end; one that is late, or takes a
  // lost worker's place, evaluates that version too. To be asked after each Pull. nullopt: none is
  // due, and parameter(...) hold version().
  virtual absl::StatusOr<std::optional<PendingEvaluation>> PullEvaluation() = 0;
  // The result: version, epoch and samples as PullEvaluation said, sums and counts over these
  // samples (proto/coordinator.proto). Then Pull: training goes on with the newest version. It is
  // on its way to the coordinator then, which may be away for a time; Finish waits until it is
  // there. False: it was not taken, since the values were not what they should have been all the
  // time, or the job has gone on without this worker, or back; PullEvaluation says whether it is to
  // be made anew. The error is that of an earlier result, if it was refused (InvalidArgument).
  virtual absl::StatusOr<bool> ReportEvaluation(const Evaluation& part) = 0;

  // All steps are done: reports the seconds spent in each phase (may be empty) and waits for the
  // end of the job (the last checkpoint included). True: the job has finished. False: there
  // are steps to do, be it that the job has gone back to a checkpoint meanwhile or that this came
  // too early: Pull and train on, until this says true. (To end a job before its last step there
  // are `parley stop` and Preempt, with a checkpoint, and Fail.) A stage only waits for the end.
  // True as well where the job, which goes on, has sent this worker away (`parley scale`, `parley
  // drain`): drained() tells.
  virtual absl::StatusOr<bool> Finish(const std::vector<PhaseSeconds>& seconds) = 0;

  // The job has sent this worker away, which has left it in peace: its last step counts. Any verb
  // that has to wait may find it out and end with CANCELLED; this is no failure then.
  virtual bool drained() const { return false; }
  // Finish has said true.
  virtual bool finished() const { return false; }

  // This worker gets on, though it calls no verb: for a step, or an evaluation, that takes about as
  // long as `stall_timeout`. The training thread, now and then.
  virtual void Progress() {}

  // This worker cannot go on: ends the job with this reason, unless it has failed before; returns
  // the cause that counts. Waits for it up to `liveness`, and unless `preempted` (this process was
  // told to end) for `autonomy` more.
  virtual FirstCause Fail(const std::string& reason, bool preempted) = 0;

  // This process was told to end ("preempted by SIGTERM"): the job goes on, with this worker too,
  // until a checkpoint is whole, and fails then. Where the job has gone on without this worker, it
  // does not join anew: the session ends with this reason. `time`: how long the job may go on,
  // WarningGrace (common/job/job_file.h) at most; a second call counts where it leaves less. Does
  // not wait; any thread.
  virtual void Preempt(const std::string& reason, absl::Duration time) = 0;

  // This process was told to end, and does so by itself once its step is over: where the job has
  // gone on without it, it does not join anew; the session ends with this reason. Does not wait;
  // any thread. Preempt does it too, and Fail of a preempted one.
  virtual void JoinNoMore(const std::string& reason) { (void)reason; }

  // Why the job failed, if it has.
  virtual std::optional<FirstCause> failure() const = 0;

  // Bytes and seconds since Join, for metrics and the table at the end.
  struct Traffic {
    uint64_t pushed_bytes = 0;  // of gradients and buffers, as they were sent
    uint64_t pulled_bytes = 0;  // of values, also of those that are read where a shard has them
    double push_seconds = 0;    // training thread, waiting for acknowledgements
    double wait_seconds = 0;    // waiting for the verdict
    double pull_seconds = 0;    // waiting for values
  };
  virtual Traffic traffic() const = 0;

  // Adds what this worker does or waits for now, for `parley why-stuck`. Any thread.
  virtual void TellWaits(WaitsReply& reply) const { (void)reply; }

  struct Epochs {
    uint64_t job = 0;   // rises where the job goes back, and this worker with it; 0 before Register
    uint64_t view = 0;  // of the newest view that this worker knows; 0 before the first one
  };
  virtual Epochs epochs() const = 0;
};

inline absl::Status Session::RegisterPart(std::vector<TensorSpec> /*tensors*/,
                                          std::vector<TensorSpec> /*model*/,
                                          uint64_t /*training_samples*/,
                                          uint64_t /*test_samples*/) {
  return absl::UnimplementedError("this session knows no pipelines");
}

inline absl::Status Session::AwaitPeers(const std::string& /*what*/,
                                        const std::function<bool()>& /*done*/) {
  return absl::UnimplementedError("this session knows no pipelines");
}

inline absl::Status Session::PullVersion(uint64_t /*version*/) {
  return absl::UnimplementedError("this session knows no pipelines");
}

}  // namespace parley

#endif  // PARLEY_CLIENT_SESSION_H_
