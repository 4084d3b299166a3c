#include "server/coordinator/locked_coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/await.h"
#include "common/utc_text.h"

namespace parley {

LockedCoordinator::LockedCoordinator(CoordinatorCore::Options options, Clock clock)
    : clock_(std::move(clock)),
      longest_held_(options.liveness / 2),
      longest_unrecorded_(options.stall_timeout),
      core_(std::move(options)) {}

template <class Request, class Reply>
void LockedCoordinator::Call(Method<Request, Reply> method, const Request& request,
                             Done<Reply> done, bool may_overtake) {
  Replies replies;
  absl::MutexLock lock(&mu_);
  if (!lost_.ok()) return replies.Add<Reply>(std::move(done), lost_);
  const uint64_t revision = core_.durable_revision();
  absl::StatusOr<Reply> reply = (core_.*method)(request, clock_(), replies);
  Announce(replies);
  const bool tells_nothing = may_overtake && reply.ok() && core_.durable_revision() == revision;
  // The caller's own answer goes last: who is woken by it sees the others woken.
  replies.Add<Reply>(tells_nothing ? std::move(done) : Handing(std::move(done)), std::move(reply));
}

void LockedCoordinator::Announce(Replies& replies) {
  if (IsRecorded()) return;
  unrecorded_since_ = std::min(unrecorded_since_, clock_());
  if (announced_) return;
  announced_ = true;
  replies.Add(due_);
}

template <class Reply>
Done<Reply> LockedCoordinator::Handing(Done<Reply> done) {
  return [this, done = std::move(done)](absl::StatusOr<Reply> reply) mutable {
    Hand(std::move(done), std::move(reply));
  };
}

template <class Reply>
void LockedCoordinator::Hand(Done<Reply> done, absl::StatusOr<Reply> reply) {
  absl::Status lost;
  {
    absl::MutexLock lock(&mu_);
    lost = lost_;
    if (lost.ok() && !IsRecorded()) {
      held_.push_back(
          {core_.durable_revision(), clock_(),
           [done = std::move(done), reply = std::move(reply)](const absl::Status& instead) mutable {
             instead.ok() ? done(std::move(reply)) : done(instead);
           }});
      return;
    }
  }
  lost.ok() ? done(std::move(reply)) : done(lost);
}

void LockedCoordinator::RecordWith(std::function<void()> due) {
  absl::MutexLock lock(&mu_);
  due_ = std::move(due);
  recorded_ = core_.durable_revision();
}

absl::Status LockedCoordinator::Record(const Append& append) {
  CoordinatorState state;
  uint64_t revision = 0;
  absl::Time began;
  {
    absl::MutexLock lock(&mu_);
    began = clock_();
    if (!lost_.ok() || IsRecorded()) {
      announced_ = false;
      return absl::OkStatus();
    }
    revision = core_.durable_revision();
    state = core_.DurableState();
  }
  const absl::Status appended = append(state);
  std::deque<Held> ready;
  Replies replies;
  {
    absl::MutexLock lock(&mu_);
    not_recorded_ = appended;
    // A disk that refuses has answered, and may have room tomorrow: training goes on.
    if (!appended.ok()) unrecorded_since_ = clock_();
    // After a failure it stays announced: who records tries again, and nobody else need ask.
    if (!appended.ok() || !lost_.ok()) return appended;
    announced_ = false;
    recorded_ = revision;
    // What is not in this record has come since.
    unrecorded_since_ = IsRecorded() ? absl::InfiniteFuture() : began;
    while (!held_.empty() && held_.front().revision <= recorded_) {
      ready.push_back(std::move(held_.front()));
      held_.pop_front();
    }
    Announce(replies);
  }
  for (Held& held : ready) held.answer(absl::OkStatus());
  return absl::OkStatus();
}

absl::Status LockedCoordinator::AwaitRecorded(absl::Duration limit) {
  absl::MutexLock lock(&mu_);
  (void)AwaitFor(mu_, absl::Condition(this, &LockedCoordinator::IsRecordedOrLost), limit);
  if (IsRecorded()) return absl::OkStatus();
  if (!lost_.ok()) return lost_;
  return absl::DeadlineExceededError(
      absl::StrCat("not recorded after ", absl::FormatDuration(limit)));
}

void LockedCoordinator::RefuseHeld(absl::Time held_until, const absl::Status& why) {
  std::deque<Held> refused;
  {
    absl::MutexLock lock(&mu_);
    while (!held_.empty() && held_.front().since <= held_until) {
      refused.push_back(std::move(held_.front()));
      held_.pop_front();
    }
  }
  for (Held& held : refused) held.answer(why);
}

void LockedCoordinator::Lose(const absl::Status& why) {
  const absl::Status refusal = absl::UnavailableError(why.message());
  {
    Replies replies;  // what was parked is handed on, and refused there
    absl::MutexLock lock(&mu_);
    if (!lost_.ok()) return;
    lost_ = refusal;
    core_.Close(replies);
  }
  RefuseHeld(absl::InfiniteFuture(), refusal);
}

absl::Status LockedCoordinator::lost() const {
  absl::MutexLock lock(&mu_);
  return lost_;
}

void LockedCoordinator::Join(const JoinRequest& request, absl::Time, Done<JoinReply> done) {
  Call(&CoordinatorCore::Join, request, std::move(done));
}

void LockedCoordinator::Heartbeat(const HeartbeatRequest& request, absl::Time,
                                  Done<HeartbeatReply> done) {
  Call(&CoordinatorCore::Heartbeat, request, std::move(done), /*may_overtake=*/true);
}

void LockedCoordinator::Watch(const WatchRequest& request, absl::Time deadline,
                              Done<SharedJobState> done) {
  Replies replies;
  absl::MutexLock lock(&mu_);
  if (!lost_.ok()) return replies.Add<SharedJobState>(std::move(done), lost_);
  core_.Watch(request, {clock_(), deadline}, replies, Handing(std::move(done)));
}

void LockedCoordinator::RegisterModel(const RegisterModelRequest& request, absl::Time,
                                      Done<RegisterModelReply> done) {
  Call(&CoordinatorCore::RegisterModel, request, std::move(done));
}

void LockedCoordinator::ReportReady(const ReportReadyRequest& request, absl::Time,
                                    Done<ReportReadyReply> done) {
  Call(&CoordinatorCore::ReportReady, request, std::move(done));
}

void LockedCoordinator::ReportVerdicts(const ReportVerdictsRequest& request, absl::Time,
                                       Done<ReportVerdictsReply> done) {
  Call(&CoordinatorCore::ReportVerdicts, request, std::move(done), /*may_overtake=*/true);
}

void LockedCoordinator::ReportEvaluation(const ReportEvaluationRequest& request, absl::Time,
                                         Done<ReportEvaluationReply> done) {
  Call(&CoordinatorCore::ReportEvaluation, request, std::move(done));
}

void LockedCoordinator::Finish(const FinishRequest& request, absl::Time, Done<FinishReply> done) {
  Call(&CoordinatorCore::Finish, request, std::move(done));
}

void LockedCoordinator::ReportCheckpointFile(const ReportCheckpointFileRequest& request, absl::Time,
                                             Done<ReportCheckpointFileReply> done) {
  Call(&CoordinatorCore::ReportCheckpointFile, request, std::move(done));
}

void LockedCoordinator::Fail(const FailRequest& request, absl::Time, Done<FailReply> done) {
  Call(&CoordinatorCore::Fail, request, std::move(done));
}

void LockedCoordinator::Leave(const LeaveRequest& request, absl::Time, Done<LeaveReply> done) {
  Call(&CoordinatorCore::Leave, request, std::move(done));
}

void LockedCoordinator::AskForCheckpoint(const AskForCheckpointRequest& request, absl::Time,
                                         Done<AskForCheckpointReply> done) {
  Call(&CoordinatorCore::AskForCheckpoint, request, std::move(done));
}

void LockedCoordinator::SetWorkers(const SetWorkersRequest& request, absl::Time,
                                   Done<SetWorkersReply> done) {
  Call(&CoordinatorCore::SetWorkers, request, std::move(done));
}

void LockedCoordinator::Drain(const DrainRequest& request, absl::Time, Done<DrainReply> done) {
  Call(&CoordinatorCore::Drain, request, std::move(done));
}

void LockedCoordinator::Stop(const StopRequest& request, absl::Time, Done<StopReply> done) {
  Call(&CoordinatorCore::Stop, request, std::move(done));
}

void LockedCoordinator::GetStatus(const GetStatusRequest& request, absl::Time,
                                  Done<GetStatusReply> done) {
  Replies replies;
  absl::MutexLock lock(&mu_);
  replies.Add<GetStatusReply>(Handing(std::move(done)), core_.GetStatus(request, clock_()));
}

void LockedCoordinator::Open(uint64_t generation, const std::string& address) {
  absl::MutexLock lock(&mu_);
  core_.Open(generation, address, clock_());
}

absl::Status LockedCoordinator::Restore(const CoordinatorState& state) {
  absl::MutexLock lock(&mu_);
  return core_.Restore(state);
}

void LockedCoordinator::Tick() {
  const absl::Time now = clock_();
  absl::Status not_recorded;
  absl::Time since;
  {
    Replies replies;
    absl::MutexLock lock(&mu_);
    if (!lost_.ok()) return;
    core_.Tick(now, replies);
    Announce(replies);
    not_recorded = absl::UnavailableError(not_recorded_.ok() ? "the disk takes very long"
                                                             : not_recorded_.message());
    // This process was stopped, and its writer with it.
    const bool was_stopped = now - last_tick_ > longest_held_;
    if (was_stopped && unrecorded_since_ < now) unrecorded_since_ = now;
    last_tick_ = now;
    since = unrecorded_since_;
  }
  if (now - since >= longest_unrecorded_) {
    return Lose(absl::UnavailableError(absl::StrCat(
        "the coordinator cannot record what changes in the job since ", FormatSince(since, now),
        ", and so tells nobody anything: ", not_recorded.message(),
        "; see to the disk of the job's directory (--out)")));
  }
  RefuseHeld(now - longest_held_,
             absl::UnavailableError(absl::StrCat(
                 "the coordinator could not record what it was asked to do; it goes on trying: ",
                 not_recorded.message())));
}

void LockedCoordinator::FailItself(const std::string& reason) {
  Replies replies;
  absl::MutexLock lock(&mu_);
  core_.FailItself(reason, clock_(), replies);
  Announce(replies);
}

void LockedCoordinator::PreemptItself(const std::string& reason, absl::Duration time) {
  Replies replies;
  absl::MutexLock lock(&mu_);
  core_.PreemptItself(reason, time, clock_(), replies);
  Announce(replies);
}

void LockedCoordinator::Close() {
  Replies replies;
  absl::MutexLock lock(&mu_);
  core_.Close(replies);
  Announce(replies);
}

void LockedCoordinator::DoFileWork(const FileWorker& worker) {
  while (true) {
    std::vector<FileWork> due;
    {
      absl::MutexLock lock(&mu_);
      if (!lost_.ok() || !IsRecorded()) return;
      due = core_.TakeFileWork();
    }
    if (due.empty()) return;
    for (FileWork& work : due) {
      const absl::Status result = worker(work);
      Replies replies;
      absl::MutexLock lock(&mu_);
      core_.FileWorkDone(work, result, clock_(), replies);
      Announce(replies);
    }
  }
}

bool LockedCoordinator::Changed() const {
  return (core_.has_file_work() && IsRecorded()) || !lost_.ok() ||
         core_.revision() != seen_revision_ || core_.membership_revision() != seen_members_;
}

void LockedCoordinator::AwaitChange(absl::Duration limit) {
  absl::MutexLock lock(&mu_);
  (void)AwaitFor(mu_, absl::Condition(this, &LockedCoordinator::Changed), limit);
  seen_revision_ = core_.revision();
  seen_members_ = core_.membership_revision();
}

}  // namespace parley
