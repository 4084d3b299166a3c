#include "client/worker_session.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/job/job_file.h"
#include "common/utc_text.h"

namespace parley {
absl::StatusOr<std::unique_ptr<Session>> Session::Join(Options options, Connector& connector) {
  auto session = std::make_unique<WorkerSession>(std::move(options), connector);
  const absl::Status joined = session->JoinJob();
  if (!joined.ok()) return joined;
  return std::unique_ptr<Session>(std::move(session));
}

WorkerSession::WorkerSession(Session::Options options, Connector& connector)
    : options_(std::move(options)),
      connector_(connector),
      liveness_(Liveness(options_.job)),
      patience_(Patience(options_.job)),
      runtime_(options_.runtime),
      activity_(std::make_shared<Activity>(runtime_, options_.trace)) {}

WorkerSession::~WorkerSession() {
  if (timers_ == nullptr) return;
  // From here no attempt of a call begins any more, and no answer finds a reader.
  timers_->Stop();
  queue_->End(absl::CancelledError("the session has ended"));
  if (reducer_ != nullptr) reducer_->Abort();
  // What a late acknowledgement makes room for is encoded on its thread, out of the gradients: they
  // go after these.
  exchange_.reset();
  clock_exchange_.reset();
  const std::shared_ptr<Membership> member = membership();
  if (member != nullptr && !left_ && member->failure().has_value()) member->Leave();
  if (parameters_ == nullptr || parameters_->owner().use_count() <= 2) return;
  // A module that goes on with the values is to have them for itself; where the gradients were
  // there is room for them.
  puller_.reset();
  calls_.reset();
  gradients_.reset();
  parameters_->Detach().IgnoreError();
}

std::shared_ptr<Membership> WorkerSession::membership() const {
  absl::MutexLock lock(&membership_mu_);
  return membership_;
}

void WorkerSession::NoteEnd(const std::string& reason, absl::Duration time) {
  std::shared_ptr<Membership> apart;
  {
    absl::MutexLock lock(&membership_mu_);
    preempted_for_ = preempted_by_.empty() ? time : std::min(preempted_for_, time);
    if (preempted_by_.empty()) preempted_by_ = reason;
    if (is_apart_) apart = membership_;
  }
  // It has no step that could end first, and may wait for a part in the job for long.
  if (apart != nullptr) apart->Preempt(reason, time);
}

void WorkerSession::JoinNoMore(const std::string& reason) {
  NoteEnd(reason, PreemptionGrace(options_.job));
}

void WorkerSession::Preempt(const std::string& reason, absl::Duration time) {
  NoteEnd(reason, time);  // first: no other one takes its place after that
  membership()->Preempt(reason, time);
}

std::optional<FirstCause> WorkerSession::OwnEnd() const {
  std::shared_ptr<Membership> member;
  std::string reason;
  absl::Duration time;
  {
    absl::MutexLock lock(&membership_mu_);
    member = membership_;
    reason = preempted_by_;
    time = preempted_for_;
  }
  // It may not have heard of it: not yet, or since its step was to end first.
  if (!reason.empty()) member->Preempt(reason, time);
  return member->failure();
}

void WorkerSession::MakeCalls() {
  timers_ = runtime_->MakeTimers();
  ServiceCalls::Options calls;
  calls.patience = patience_;
  calls.liveness = liveness_;
  calls.activity = activity_;
  calls_ = std::make_unique<ServiceCalls>(calls, connector_, *membership(), queue_, timers_,
                                          runtime_->DrawIncarnation());
}

void WorkerSession::DropCalls() {
  timers_->Stop();  // no attempt begins any more
  exchange_.reset();
  clock_exchange_.reset();
  puller_.reset();
  calls_.reset();
  LeaveGradients();
  activity_->ForgetCalls();
  held_.reset();
  ahead_.reset();
  LoseTrack();
}

void WorkerSession::LeaveGradients() {
  is_read_.clear();
  // Shards may have to read yet what was lent to them: it may count.
  if (gradients_.has_value() && gradients_->lends()) {
    if (gradients_->LeaveToReaders().ok()) {
      ++gradient_memory_;
    } else {
      gradients_->Recall();  // then at least they find out that it is gone
    }
  }
}

absl::Status WorkerSession::JoinJob() {
  const bool again = membership() != nullptr;
  queue_ = std::make_shared<AnswerQueue>(runtime_, connector_.visitors());
  {
    absl::MutexLock lock(&wake_mu_);
    woken_ = queue_;
  }
  watched_ = std::make_shared<SharedJobState>(std::make_shared<const WatchReply>());
  if (is_expelled_ != nullptr) *is_expelled_ = false;  // for who asks whether it `still` is
  is_expelled_ = std::make_shared<std::atomic<bool>>(false);

  Membership::Options member;
  member.job = options_.job.name();
  member.job_fingerprint = JobFingerprint(options_.job);
  member.role = options_.role;
  member.coordinator = options_.coordinator;
  member.address = options_.address;
  member.metrics_address = options_.metrics_address;
  member.liveness = liveness_;
  member.autonomy = Autonomy(options_.job);
  member.join_timeout = again ? std::max(patience_, options_.join_timeout) : options_.join_timeout;
  member.again = again;
  // A place may be that of a lost member, this one's own former one too.
  member.wait_for_place = again ||
                          options_.job.cluster().min_workers() < options_.job.cluster().workers() ||
                          options_.job.max_restarts() != 0;
  if (again) member.gives_up = [this] { return OwnEnd().has_value(); };
  member.runtime = runtime_;
  member.resolve = options_.resolve;
  member.coordinator_news = options_.coordinator_news;
  Membership::Listener listener;
  newest_ = std::make_shared<NewestState>();
  // Only the newest state counts: those that come during a long step do not pile up.
  listener.on_state = [queue = queue_, watched = watched_,
                       newest = newest_](const SharedJobState& state) {
    if (newest->Hear(state)) queue->Post([watched, newest] { *watched = newest->Take(); });
  };
  listener.on_failed = [queue = queue_, newest = newest_,
                        told = options_.on_failed](const FirstCause& cause) {
    newest->End();
    queue->End(absl::AbortedError(cause.text()));
    if (told) told(cause);
  };
  listener.on_expelled = [queue = queue_, newest = newest_, is_expelled = is_expelled_,
                          told = options_.on_expelled] {
    newest->End();
    *is_expelled = true;
    queue->End(absl::AbortedError("the job goes on without this worker"));
    if (told) told([is_expelled] { return is_expelled->load(); });
  };
  absl::StatusOr<std::unique_ptr<Membership>> joined =
      Membership::Join(std::move(member), connector_, std::move(listener));
  if (!joined.ok()) {
    const std::optional<FirstCause> end = again ? OwnEnd() : std::nullopt;
    return end.has_value() ? absl::AbortedError(end->text()) : joined.status();
  }
  const std::shared_ptr<Membership> shared = *std::move(joined);
  // What a stage has made is for its place.
  if (again && is_stage() && shared->ordinal() != member_ordinal()) {
    return absl::FailedPreconditionError(
        absl::StrCat("another process has become stage ", member_ordinal(),
                     " while this one was not heard of: start a new one where one is missing"));
  }
  std::shared_ptr<Membership> former = shared;
  std::string told_to_end;
  {
    absl::MutexLock lock(&membership_mu_);
    if (again) told_to_end = preempted_by_;
    if (told_to_end.empty()) {
      membership_.swap(former);
      is_apart_ = again;
    }
  }
  if (!told_to_end.empty()) {
    // In a job that trains it has no part yet: its place is another one's at once. Not Fail, which
    // waits for a cause: the job has none.
    shared->Leave();
    const std::optional<FirstCause> end = OwnEnd();
    return absl::AbortedError(end.has_value() ? end->text() : told_to_end);
  }
  former.reset();  // waits for its threads: not under the lock
  ++memberships_;
  MakeCalls();
  return absl::OkStatus();
}

absl::Status WorkerSession::Await(const std::string& what, const std::function<bool()>& done) {
  const absl::Time started = runtime_->Now();
  // A call's own patience ends first and says more.
  absl::Time deadline = started + patience_ + absl::Seconds(1);
  const Activity::Waiting waiting(*activity_, what, deadline);
  absl::Status status;
  while (true) {
    status =
        queue_->RunUntil([&] { return JobWentBack() || done(); }, deadline, [&] { Waits(started); },
                         std::max(liveness_ / 4, absl::Milliseconds(50)));
    // Before its time a wait can end so as well: the queue's end has whatever status it was given.
    const absl::Time now = runtime_->Now();
    if (!absl::IsDeadlineExceeded(status) || now < deadline) break;
    // For a process that the simulation has killed there is no time after its end.
    if (now == absl::InfiniteFuture()) break;
    if (now >= deadline + patience_) {
      // Who wakes so late was stopped, and knows nothing yet. Where all were, the coordinator has
      // given it a new lease; else it is about to hear that the job goes on without it.
      deadline = now + TimeToHear();
      continue;
    }
    if (!membership()->hears_coordinator()) break;
    // The others may be slow (the last checkpoint, a queue full of jobs): the coordinator sees
    // whether they get on, or all wait for each other, and ends the job where nobody does.
    deadline = now + patience_ + absl::Seconds(1);
  }
  if (status.ok()) Progress();
  // Also if `done`: what it was about is void.
  if (status.ok() && JobWentBack()) return WentBack();
  if (!absl::IsDeadlineExceeded(status)) return status;
  return absl::DeadlineExceededError(absl::StrCat(
      what, ": nothing since ", FormatSince(started, runtime_->Now()), WhatIsMissing()));
}

std::string WorkerSession::WhatIsMissing() {
  GetStatusRequest request;
  request.set_job(options_.job.name());
  auto missing = std::make_shared<std::optional<std::string>>();
  membership()->coordinator()->GetStatus(
      request, runtime_->Now() + liveness_ / 4,
      [queue = queue_, missing](const absl::StatusOr<GetStatusReply>& reply) {
        std::string text = reply.ok() ? reply->what_is_missing() : "";
        queue->Post([missing, text] { *missing = text; });
      });
  (void)queue_->RunUntil([&] { return missing->has_value(); }, runtime_->Now() + liveness_ / 2,
                         [] {}, liveness_);
  const std::string text = missing->value_or("");
  return text.empty() ? "" : absl::StrCat("; missing: ", text);
}

void WorkerSession::Progress() { membership()->Progress(version(), job_epoch_); }

void WorkerSession::Waits(absl::Time since) {
  std::string what;
  if (runtime_->Now() - since >= StallTimeout(options_.job) / 4) {
    WaitsReply reply;
    activity_->Tell(reply);
    // The first one says what it is about; of others there may be one for each shard.
    if (reply.waits_size() > 0) what = reply.waits(0).what();
    if (reply.waits_size() > 1) absl::StrAppend(&what, ", and ", reply.waits_size() - 1, " others");
  }
  membership()->Waits(version(), job_epoch_, what);
}

Session::Epochs WorkerSession::epochs() const {
  return {.job = job_epoch_, .view = membership()->header().view_epoch()};
}

Session::Traffic WorkerSession::traffic() const {
  absl::MutexLock lock(&traffic_mu_);
  return traffic_;
}

}  // namespace parley
