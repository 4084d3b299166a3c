#ifndef PARLEY_SERVER_PARAMETER_SHARD_LOCKED_SHARD_H_
#define PARLEY_SERVER_PARAMETER_SHARD_LOCKED_SHARD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/replies.h"
#include "proto/job.pb.h"
#include "proto/parameter_shard.pb.h"
#include "server/parameter_shard/shard.h"

namespace parley {

// A Shard under its lock, for callers on many threads: the gRPC service, the in-process client, and
// the process around them. Exists before the process has joined; until Start every call is
// Unavailable. Answers run after the lock is released. Thread-safe.
class LockedShard {
 public:
  // Adding a push; carrying out a verdict; the same where what a checkpoint or a reader still held
  // was copied first.
  enum class Phase { kReduce, kApply, kApplyCopying };
  struct Listener {
    // There is something new: a decided step or attempt, a view, outgoing messages, readiness, an
    // error. Called without the lock, on the thread of the call that made it, or that carries out a
    // step; must not block.
    // urgent: it is more than a decided step for the coordinator to hear of.
    std::function<void(bool urgent)> on_news;
    std::function<void(Phase, absl::Duration)> on_phase;
  };

  // What the resources name must outlive this; `later` runs its tasks on other threads than those
  // that call this. Answers that are given on these must not call it.
  LockedShard(JobConfig job, Listener listener, ShardResources resources = {})
      : job_(std::move(job)), listener_(std::move(listener)), resources_(std::move(resources)) {}
  ~LockedShard();

  // The process has joined as this shard.
  void Start(uint32_t ordinal);

  void Initialize(const InitializeRequest& request, CallTime time, Done<InitializeReply> done);
  // As Shard::Push. The slices' bytes are not looked at after it has returned.
  void Push(const PushRequest& request, absl::Span<const TensorSlice> slices, CallTime time,
            Done<PushReply> done);
  void Push(const PushRequest& request, CallTime time, Done<PushReply> done) {
    Push(request, ViewsOf(request.slices()), time, std::move(done));
  }
  void Complete(const CompleteRequest& request, CallTime time, Done<CompleteReply> done);
  void Enter(const EnterRequest& request, CallTime time, Done<EnterReply> done);
  void Close(const CloseRequest& request, CallTime time, Done<CloseReply> done);
  void Decide(const DecideRequest& request, CallTime time, Done<DecideReply> done);
  void Advance(const AdvanceRequest& request, CallTime time, Done<AdvanceReply> done);
  void Pull(const PullRequest& request, CallTime time, Done<PulledVersion> done);
  void WhyFailed(const WhyFailedRequest& request, CallTime time, Done<WhyFailedReply> done);

  absl::Status SetView(const ClusterView& view, absl::Time now);
  absl::Status StartSlice(uint32_t slice, const SliceStart& start, absl::Time now);
  void FollowCheckpoints(uint64_t asked, uint64_t ended, absl::Time now);
  void Fail(const FirstCause& cause);
  void Stop();
  void Tick(absl::Time now);
  void OnCloseReply(uint32_t shard, const CloseRequest& request, const CloseReply& reply,
                    absl::Time now);
  void OnAdvanceReply(uint32_t shard, const AdvanceRequest& request, absl::Time now);
  absl::StatusOr<std::vector<SliceSnapshot>> Snapshot(uint64_t version);

  // Adds what the shard waits for, and the last decided step, for `parley why-stuck`.
  void TellWaits(absl::Time now, WaitsReply& reply);

  // What there is to do and to show, at one moment.
  struct News {
    std::vector<ToShard> outbox;    // taken
    std::vector<Verdict> verdicts;  // taken
    JobProgress progress;           // after them; only the step leader's
    std::shared_ptr<const Routing> routing;
    bool ready = false;
    uint64_t version = 0;  // the last decided step
    std::string error;     // empty: none
    ShardCounts counts;
    absl::Duration ahead_spent;         // of all threads with updates ahead
    std::function<void()> reservation;  // taken; Shard::TakeReservation
  };
  News TakeNews();

  // Whether a caller would have to wait now for one who is at it, who may carry out a step of many
  // GiB.
  bool busy() const {
    if (!mu_.TryLock()) return true;
    const bool works = works_;
    mu_.Unlock();
    return works;
  }

  // Looks at the shard under the lock: `look(shard)`, with null before Start. It must not call
  // back.
  template <class Look>
  auto Read(Look look) const {
    absl::MutexLock lock(&mu_, absl::Condition(this, &LockedShard::IsIdle));
    return look(static_cast<const Shard*>(shard_.get()));
  }

 private:
  // Runs `call` on the shard, and then, without the lock, the answers, the listener, and what a
  // decided step leaves to be done later. Only a Pull need not wait for that of the step before.
  enum class When { kIdle, kAlways };
  template <class Call>
  void With(Call call, When when = When::kIdle);
  // On a thread of resources_.later.
  void Work(StepWork& work);
  void ComputeAhead(std::vector<std::shared_ptr<AheadUpdate>> updates);
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !works_; }
  template <class Reply, class Call>
  void Answer(Done<Reply> done, Call call, When when = When::kIdle);
  static absl::Status NotJoined();

  const JobConfig job_;
  const Listener listener_;
  const ShardResources resources_;
  // Nanoseconds of all updates ahead; their threads', which may go on beyond this one's life.
  const std::shared_ptr<std::atomic<int64_t>> ahead_spent_ =
      std::make_shared<std::atomic<int64_t>>(0);
  mutable absl::Mutex mu_;
  std::unique_ptr<Shard> shard_ ABSL_GUARDED_BY(mu_);
  bool works_ ABSL_GUARDED_BY(mu_) = false;  // a decided step is being carried out without the lock
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_LOCKED_SHARD_H_
