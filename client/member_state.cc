#include "client/member_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/retry.h"
#include "common/utc_text.h"

namespace parley {
namespace {

const Member* StepLeader(const ClusterView& view) {
  for (const Member& member : view.members()) {
    if (member.role() == SHARD && member.ordinal() == view.step_leader()) return &member;
  }
  return nullptr;
}

}  // namespace

MemberState::MemberState(Options options, absl::Time joined)
    : options_(std::move(options)),
      last_tick_(joined),
      last_contact_(joined),
      grace_until_(joined),
      next_heartbeat_(joined + options_.liveness / 4),
      next_watch_(joined),
      next_ask_(joined),
      fenced_at_(joined),
      next_status_(joined),
      generation_(options_.generation) {}

bool MemberState::is_step_leader() const {
  return options_.role == SHARD && watched_->has_view() &&
         watched_->view().step_leader() == options_.ordinal;
}

void MemberState::Tick(absl::Time now) {
  if (now - last_tick_ > options_.liveness / 2) grace_until_ = now + options_.liveness / 4;
  last_tick_ = std::max(last_tick_, now);
  if (over() || ended_) return;
  if (preemption_.has_value() && now >= preemption_->until) {
    FailWith(absl::StrCat(preemption_->reason, ", and the coordinator at ", options_.coordinator,
                          " has not ended the job in time"),
             /*preempted=*/true);
    return;
  }
  if (fenced()) {
    if (now >= status_deadline()) OnStatus(absl::DeadlineExceededError(""), now);
    return;
  }
  if (now < last_contact_ + options_.liveness || now < grace_until_) return;
  lost_ = true;
  if (now < alone_until()) return;
  if (is_step_leader() || leader_address().empty() || now >= ask_deadline()) {
    const std::string alone = options_.autonomy == absl::ZeroDuration()
                                  ? ""
                                  : absl::StrCat(", and training without it may last ",
                                                 absl::FormatDuration(options_.autonomy));
    Fail(absl::StrCat("coordinator at ", options_.coordinator, " has not answered since ",
                      FormatSince(last_contact_, now), alone),
         /*preempted=*/false);
  }
}

void MemberState::OnHeartbeat(absl::Status status, absl::Time sent, absl::Time now,
                              uint64_t generation) {
  if (over()) return;
  if (status.ok() && generation < generation_) {
    status = absl::UnavailableError("a former coordinator answered");
  }
  if (status.ok()) {
    generation_ = generation;
    missed_heartbeats_ = 0;
    lost_ = false;
    fence_ = absl::OkStatus();
    last_contact_ = std::max(last_contact_, now);
    next_heartbeat_ = sent + options_.liveness / 4;
    return;
  }
  ++missed_heartbeats_;
  next_heartbeat_ = now + options_.liveness / 16;
  OnRefusal(status, now);
}

bool MemberState::OnWatch(const absl::StatusOr<SharedJobState>& told, absl::Time now) {
  if (over() || ended_) return false;
  if (!told.ok()) {
    // DeadlineExceeded: nothing new. Else not at once again, a peer that is down answers fast.
    next_watch_ = absl::IsDeadlineExceeded(told.status()) ? now + absl::Milliseconds(10)
                                                          : now + options_.liveness / 32;
    OnRefusal(told.status(), now);
    return false;
  }
  const WatchReply& state = **told;
  next_watch_ = now;
  if (state.phase() == PHASE_UNSPECIFIED || state.generation() < generation_ ||
      (state.generation() == watched_->generation() && state.revision() <= watched_->revision())) {
    next_watch_ = now + absl::Milliseconds(10);
    return false;
  }
  generation_ = state.generation();
  lost_ = false;  // who ends with the job now must still say goodbye
  // The job went back: what was decided since then is so no more.
  if (state.view().job_epoch() > job_epoch()) last_decided_step_ = 0;
  watched_ = *told;
  if (state.has_view()) Progress(state.view().start_version(), job_epoch());
  if (state.has_checkpoint()) Progress(state.checkpoint().step(), job_epoch());
  if (state.phase() == FAILED) {
    failure_ = state.cause();
    return false;
  }
  ended_ = state.phase() == FINISHED;
  return true;
}

void MemberState::OnRefusal(const absl::Status& status, absl::Time now) {
  // Once the job has finished, its coordinator may go, and with it what it knew of us.
  if (ended_ || fenced()) return;
  if (ActionFor(status.code()) != RetryAction::kGiveUp) return;
  // To find out whether it could join anew is of no use any more.
  if (preemption_.has_value()) return FailWith(preemption_->reason, /*preempted=*/true);
  fence_ = status;
  fenced_at_ = now;
}

bool MemberState::wants_leader(absl::Time now) const {
  return !over() && !ended_ && !fenced() && now >= last_contact_ + options_.liveness / 2 &&
         now >= next_ask_ && now < ask_deadline() && !is_step_leader() && !leader_address().empty();
}

std::string MemberState::leader_address() const {
  if (!watched_->has_view()) return "";
  const Member* leader = StepLeader(watched_->view());
  return leader == nullptr ? "" : leader->address();
}

absl::Time MemberState::ask_deadline() const {
  // The rest up to 2 * liveness is for printing and going.
  return std::max(grace_until_, alone_until() + options_.liveness - options_.liveness / 4);
}

void MemberState::OnLeaderAnswer(const absl::StatusOr<FirstCause>& cause, absl::Time now) {
  if (over() || ended_) return;
  if (cause.ok() && !cause->text().empty()) {
    failure_ = *cause;
    return;
  }
  next_ask_ = now + options_.liveness / 32;
}

void MemberState::OnStatus(const absl::StatusOr<GetStatusReply>& reply, absl::Time now) {
  if (over() || !fenced()) return;
  const bool is_former = reply.ok() && reply->generation() < generation_;
  if ((!reply.ok() || is_former) && now < status_deadline()) {
    next_status_ = now + options_.liveness / 16;
    return;
  }
  if (reply.ok() && !is_former && reply->has_cause() && !reply->cause().text().empty()) {
    failure_ = reply->cause();
    return;
  }
  const bool ended = reply.ok() && (reply->phase() == FINISHED || reply->phase() == FAILED);
  if (options_.may_rejoin && absl::IsAborted(fence_) && !ended) {
    expelled_ = true;
    return;
  }
  // Nobody has to do anything about it then.
  const char* const finished =
      reply.ok() && reply->phase() == FINISHED ? "the job is FINISHED without it: " : "";
  Fail(absl::StrCat(options_.self, ": ", finished, "the coordinator at ", options_.coordinator,
                    absl::IsAborted(fence_) ? " has fenced it off: " : " has refused it: ",
                    fence_.message()),
       /*preempted=*/false);
}

void MemberState::Progress(uint64_t last_decided_step, uint64_t job_epoch) {
  if (job_epoch < this->job_epoch()) return;
  last_decided_step_ = std::max(last_decided_step_, last_decided_step);
}

bool MemberState::Preempt(const std::string& reason, absl::Time until) {
  // The job goes on without it, and it is not to join anew: nobody need be told.
  if (expelled_) FailWith(reason, /*preempted=*/true);
  if (over() || ended_) return false;
  if (preemption_.has_value()) {
    // The first reason stays; but SIGTERM, which may follow SIGUSR1, leaves less time.
    if (until >= preemption_->until) return false;
    preemption_->until = until;
    return true;
  }
  preemption_ = {reason, until};
  if (fenced()) FailWith(reason, /*preempted=*/true);
  return true;
}

void MemberState::FailWith(const std::string& reason, bool preempted) {
  if (!failure_.has_value()) Fail(absl::StrCat(options_.self, ": ", reason), preempted);
}

void MemberState::Fail(const std::string& what, bool preempted) {
  FirstCause cause;
  cause.set_text(absl::StrCat(what, "; last decided step ", last_decided_step_));
  cause.set_last_decided_step(last_decided_step_);
  cause.set_preempted(preempted);
  failure_ = std::move(cause);
}

}  // namespace parley
