#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

std::map<Role, uint32_t> Places(const Cluster& cluster) {
  std::map<Role, uint32_t> places = {{SHARD, cluster.shards()}, {WORKER, cluster.workers()}};
  if (cluster.stages() != 0) places[STAGE] = cluster.workers() * cluster.stages();
  return places;
}

}  // namespace

CoordinatorCore::CoordinatorCore(Options options)
    : options_(std::move(options)),
      members_(options_.job.name(), options_.fingerprint, Places(options_.job.cluster()),
               options_.liveness, options_.job.cluster().group()),
      models_(options_.job.cluster().stages()),
      ready_shards_(options_.job.cluster().shards(), false) {
  if (options_.start) damaged_checkpoints_ = options_.start->damaged;
  if (options_.wanted_workers) {
    has_scaled_ = true;
    members_.SetPlaces(WORKER, *options_.wanted_workers);
  }
}

void CoordinatorCore::Open(uint64_t generation, const std::string& address, absl::Time now) {
  generation_ = generation;
  watchers_.SetGeneration(generation);
  address_ = address;
  last_event_ = last_tick_ = now;
  if (members_.revision() == 0) return;
  // It takes over: nobody is to blame for the time in which there was no coordinator.
  resumed_at_ = now;
  members_.Resume(now);
  progress_.Resume(now);
  checkpoint_.Resume(now);
  if (life_.phase() == TRAINING) training_since_ = now;
  if (life_.ended()) ended_at_ = now;
  if (life_.phase() == GATHERING) CountGathered(now);
}

void CoordinatorCore::Close(Replies& replies) {
  closed_ = true;
  Change();
  watchers_.Tell(State(), members_.Drained(), replies);
}

absl::StatusOr<CoordinatorCore::Caller*> CoordinatorCore::Admit(const CallHeader& header,
                                                                Scope scope, absl::Time now) {
  if (generation_ == 0) return absl::UnavailableError("the coordinator is starting; try again");
  auto caller = members_.Admit(header, now);
  if (!caller.ok() || scope == Scope::kCaller) return caller;
  if (header.view_epoch() == 0 || header.view_epoch() > view_.view_epoch() ||
      header.job_epoch() > job_epoch_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the call is of job_epoch ", header.job_epoch(), ", view_epoch ",
                     header.view_epoch(), ", the coordinator's are ", job_epoch_, " and ",
                     view_.view_epoch(), ": fetch the view and try again"));
  }
  if (header.job_epoch() < job_epoch_) {
    return absl::AbortedError(absl::StrCat("the job was rolled back: the call is of job_epoch ",
                                           header.job_epoch(), ", it is ", job_epoch_, " now"));
  }
  // An older view is no reason to refuse: what these calls touch is the caller's own place, and
  // where that has changed hands the caller is fenced.
  return caller;
}

absl::StatusOr<CoordinatorCore::Caller*> CoordinatorCore::Admit(const CallHeader& header,
                                                                Scope scope,
                                                                std::initializer_list<Role> roles,
                                                                absl::Time now) {
  auto caller = Admit(header, scope, now);
  if (caller.ok() &&
      std::find(roles.begin(), roles.end(), (*caller)->member.role()) == roles.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe((*caller)->member), ": this call is not for its role"));
  }
  return caller;
}

absl::Status CoordinatorCore::InPhase(std::initializer_list<Phase> phases) const {
  for (Phase phase : phases) {
    if (life_.phase() == phase) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("job '", options_.job.name(), "' is ", Phase_Name(life_.phase()),
                   cause_ ? absl::StrCat(": ", cause_->text()) : ""));
}

void CoordinatorCore::FailItself(const std::string& reason, absl::Time now, Replies& replies) {
  EndJob(OfCoordinator(address_, reason, /*preempted=*/true, progress_.step()), now);
  TellWatchers(replies);
}

std::vector<FileWork> CoordinatorCore::TakeFileWork() { return std::exchange(file_work_, {}); }

bool CoordinatorCore::Enter(Phase phase, absl::Time now) {
  if (!life_.Enter(phase)) return false;
  ++revision_;
  Change();
  GotOn(now);
  if (phase == TRAINING) {
    training_since_ = now;
    progress_.StartClock(now);
  }
  if (phase == SAVING || phase == FAILED) progress_.StopClock(now);
  if (life_.ended()) ended_at_ = now;
  return true;
}

void CoordinatorCore::TrainIfShardsAreReady(absl::Time now) {
  if (life_.phase() != PREPARING) return;
  if (std::count(ready_shards_.begin(), ready_shards_.end(), false) != 0) return;
  Enter(TRAINING, now);
  // Nothing depends on contributor 0 more than on others from now on.
  if (!WaitsForReplacement()) vacancies_.clear();
  if (LacksCheckpoint() || preemption_) AskNow(now);
  SaveIfAllHaveFinished(now);
}

void CoordinatorCore::SaveIfAllHaveFinished(absl::Time now) {
  // A worker knows its last verdict from the step leader, and so perhaps before the coordinator
  // does.
  if (life_.phase() != TRAINING || !AllHaveFinished() || finished_.last_step() > progress_.step()) {
    return;
  }
  if (finished_.last_step() < progress_.step()) {
    EndJob(OfCoordinator(address_,
                         absl::StrCat("the workers finished with step ", finished_.last_step(),
                                      ", but later steps are decided"),
                         /*preempted=*/false, progress_.step()),
           now);
    return;
  }
  Enter(SAVING, now);
  SaveOrEnd(now);
}

void CoordinatorCore::EndJob(FirstCause cause, absl::Time now) {
  if (!Enter(FAILED, now)) return;  // another cause was first, or the job has finished
  if (preemption_ && !cause.preempted()) {
    // That somebody was told to end was first. Whoever was told so may go before the checkpoint is
    // whole, and be missed.
    cause = PreemptedCause(
        absl::StrCat("no checkpoint could be written: ", cause.text(), "; ", LastWhole()));
  }
  cause_ = std::move(cause);
}

void CoordinatorCore::FailMember(const Member& member, const std::string& reason, bool preempted,
                                 absl::Time now) {
  EndJob(ReportedBy(member, reason, preempted, progress_.step()), now);
}

void CoordinatorCore::TellWatchers(Replies& replies) {
  if (told_revision_ == revision_) return;
  told_revision_ = revision_;
  if (watchers_.size() != 0) watchers_.Tell(State(), members_.Drained(), replies);
}

}  // namespace parley
