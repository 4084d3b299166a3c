// A process of the job was told to end: the job goes on for a checkpoint, and ends then.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/first_cause.h"

namespace parley {

void CoordinatorCore::PreemptItself(const std::string& reason, absl::Duration time, absl::Time now,
                                    Replies& replies) {
  LoggedPreemption preemption;
  preemption.set_coordinator(address_);
  preemption.set_reason(OneLine(reason));
  Preempt(std::move(preemption), time, now);
  TellWatchers(replies);
}

absl::StatusOr<StopReply> CoordinatorCore::Stop(const StopRequest& request, absl::Time now,
                                                Replies& replies) {
  if (generation_ == 0) return absl::UnavailableError("the coordinator is starting; try again");
  if (absl::Status status = OfThisJob(request.job()); !status.ok()) return status;
  if (life_.ended()) return InPhase({});
  LoggedPreemption preemption;
  preemption.set_coordinator(address_);
  preemption.set_reason(request.reason().empty() ? "stopped by an operator (`parley stop`)"
                                                 : OneLine(request.reason()));
  stopped_ = true;
  Change();
  // Nobody kills its processes soon, as after a signal: a slow disk may take its time.
  Preempt(std::move(preemption), std::max(options_.preemption_grace, options_.stall_timeout), now);
  TellWatchers(replies);
  StopReply reply;
  reply.set_step(progress_.step());
  return reply;
}

void CoordinatorCore::PreemptMember(const Member& member, const FailRequest& request,
                                    absl::Time now) {
  LoggedPreemption preemption;
  *preemption.mutable_member() = member;
  preemption.set_reason(OneLine(request.reason()));
  const absl::Duration longest = std::max(options_.preemption_grace, options_.warning_grace);
  const absl::Duration time = request.micros() > 0
                                  ? std::min(absl::Microseconds(request.micros()), longest)
                                  : options_.preemption_grace;
  Preempt(std::move(preemption), time, now);
}

void CoordinatorCore::Preempt(LoggedPreemption preemption, absl::Duration time, absl::Time now) {
  if (life_.ended()) return;
  const int64_t end = absl::ToUnixMicros(now + time);
  if (preemption_) {
    // The first one counts; but whoever has less time than it has gets its checkpoint, too.
    if (end < preemption_->end_unix_micros()) {
      preemption_->set_end_unix_micros(end);
      preemption_->set_micros(absl::ToInt64Microseconds(time));
      Change();
    }
    return;
  }
  const bool has_trained = life_.phase() == TRAINING || life_.phase() == SAVING;
  preemption_ = std::move(preemption);
  if (!has_trained || time == absl::ZeroDuration()) {
    EndJob(PreemptedCause(""), now);
    preemption_.reset();  // nothing goes on for it
    return;
  }
  preemption_->set_end_unix_micros(end);
  preemption_->set_micros(absl::ToInt64Microseconds(time));
  // Of the newest that has begun. A barrier in bounded and async may be at progress_.step().
  preemption_->set_after_step(checkpoint_.busy() ? checkpoint_.step() : checkpoint_.ended());
  Change();
  ++revision_;
  // In SAVING the last checkpoint is being written, and the job finishes.
  if (life_.phase() == TRAINING) AskNow(now);
}

void CoordinatorCore::EndPreempted(absl::Time now) {
  if (!preemption_ || life_.ended()) return;
  // Once a worker has done all its steps the job is about to finish: then it may.
  const bool is_ending = life_.phase() != TRAINING || finished_.begun();
  if (!is_ending && checkpoint_.ended() > preemption_->after_step()) {
    const bool is_whole = checkpoint_.whole_step() == checkpoint_.ended();
    EndJob(PreemptedCause(is_whole ? absl::StrCat("the job can go on with checkpoint.start_from=",
                                                  checkpoint_.whole_folder())
                                   : absl::StrCat("no checkpoint could be written: ",
                                                  checkpoint_.error(), "; ", LastWhole())),
           now);
    return;
  }
  if (now < preemption_end()) return;
  const absl::Duration time = absl::Microseconds(preemption_->micros());
  EndJob(PreemptedCause(absl::StrCat("no checkpoint could be written within ",
                                     absl::FormatDuration(time), "; ", LastWhole())),
         now);
}

FirstCause CoordinatorCore::PreemptedCause(const std::string& outcome) const {
  const std::string reason =
      outcome.empty() ? preemption_->reason() : absl::StrCat(preemption_->reason(), "; ", outcome);
  return preemption_->has_member()
             ? ReportedBy(preemption_->member(), reason, /*preempted=*/true, progress_.step())
             : OfCoordinator(preemption_->coordinator(), reason, /*preempted=*/true,
                             progress_.step());
}

std::string CoordinatorCore::LastWhole() const {
  if (!checkpoint_.whole_folder().empty()) {
    return absl::StrCat("the last whole one is ", checkpoint_.whole_folder());
  }
  if (!view_.start_from().empty()) {
    return absl::StrCat("there is none but the one it started from, ", view_.start_from());
  }
  return "there is none";
}

std::string CoordinatorCore::preemption() const {
  if (!preemption_ || life_.ended()) return "";
  return absl::StrCat(preemption_->has_member()
                          ? Describe(preemption_->member())
                          : absl::StrCat("coordinator at ", preemption_->coordinator()),
                      ": ", preemption_->reason());
}

absl::Time CoordinatorCore::preemption_end() const {
  return preemption_ ? absl::FromUnixMicros(preemption_->end_unix_micros())
                     : absl::InfiniteFuture();
}

}  // namespace parley
