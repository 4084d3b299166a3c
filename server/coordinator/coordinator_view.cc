// Who takes part: how the view is made, and how it changes when workers or stages are lost or come.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/view_change.h"

namespace parley {
void CoordinatorCore::MakeViewIfAllAreHere(absl::Time now) {
  if (life_.phase() != GATHERING || !members_.Complete() ||
      models_.count() != members_.places(WORKER) + members_.places(STAGE)) {
    return;
  }
  std::vector<Member> members;
  for (const Caller* entry : members_.Holders()) {
    if (!entry->left && !entry->drained) members.push_back(entry->member);
  }
  auto view = MakeView(options_.job, members, models_.model(),
                       options_.start ? &*options_.start : nullptr, job_epoch_);
  if (!view.ok()) {
    EndJob(
        OfCoordinator(address_, absl::StrCat("cannot place the model: ", view.status().message()),
                      /*preempted=*/false, 0),
        now);
    return;
  }
  view_ = *std::move(view);
  started_from_ = view_.start_from();
  for (const Member& member : members) {
    members_.RaiseParameters(member.id(), view_.start_version());
  }
  progress_.Start(view_.start_version(), view_.data_position(), view_.training_samples());
  evaluations_.Start(WorkersOf(view_, shape()), view_.test_samples());
  Enter(PREPARING, now);
}

void CoordinatorCore::ChangeView(ClusterView next, absl::Time now) {
  view_ = std::move(next);
  evaluations_.WorkersChanged();
  view_changed_at_ = now;
  ++revision_;
  Change();
}

bool CoordinatorCore::WaitsForReplacement() const {
  if (joint()) return true;
  const Sync& sync = options_.job.consistency().sync();
  return sync.lost_worker() == WAIT ||
         (sync.lost_worker() == LOST_WORKER_UNSPECIFIED && sync.deterministic());
}

uint32_t CoordinatorCore::MinWorkers() const {
  const Cluster& cluster = options_.job.cluster();
  return cluster.min_workers() != 0 ? cluster.min_workers() : cluster.workers();
}

bool CoordinatorCore::MayLose(const Caller& member) const {
  // A pipeline or node group can do nothing without each of its processes.
  if (joint()) return options_.job.max_restarts() != 0;
  // Without those that are about to go there are enough: it is looked at whenever one of the others
  // is lost.
  return member.drained || StayingContributors() > MinWorkers();
}

uint32_t CoordinatorCore::StayingContributors() const {
  const auto& contributors = view_.contributors();
  return std::count_if(contributors.begin(), contributors.end(), [this](const Contributor& one) {
    const Caller* const worker = members_.Find(one.part_members(0));
    return worker != nullptr && !worker->drained;
  });
}

void CoordinatorCore::LoseGathering(const Caller& member, FirstCause cause, absl::Time now,
                                    Replies& replies) {
  // What such a job survives while it trains. It has lost nothing yet, so nothing is counted. But a
  // shard that was only cut off would not come again: it ends when it hears that it counts as lost.
  const bool may_do_with_fewer =
      member.member.role() == WORKER && !joint() && MinWorkers() < options_.job.cluster().workers();
  const bool may_come_again =
      member.member.role() != SHARD && (may_do_with_fewer || options_.job.max_restarts() != 0);
  if (!member.drained && !may_come_again) {
    EndJob(std::move(cause), now);
    return;
  }
  models_.Forget(member.member.id());
  view_changed_at_ = now;
  LoseContributing(member, std::move(cause), now, replies);
}

void CoordinatorCore::LoseContributing(const Caller& member, FirstCause cause, absl::Time now,
                                       Replies& replies) {
  const Member& lost = member.member;
  const bool took_part = TakesPart(view_, lost.id());
  if (took_part && !MayLose(member)) {
    EndJob(std::move(cause), now);
    return;
  }
  SeeOff(member);
  members_.Fence(lost.id(), cause.text());
  Change();
  watchers_.Refuse(lost.id(),
                   absl::AbortedError(absl::StrCat("fenced: ", Describe(lost),
                                                   " counts as lost; join as a new incarnation")),
                   replies);
  if (!took_part) return;
  if (joint()) {
    finished_.Forget(lost.id());
    ChangeView(WithoutMember(view_, lost.id(), /*keep_place=*/true, progress_.step() + 1), now);
    FillPlaces(now);
    return;
  }
  // Where one worker has finished, all steps are decided, and nothing is left for a replacement;
  // but the place stays, since the job may yet go back.
  const bool is_over = finished_.begun();
  const bool waits = WaitsForReplacement();
  const bool was_to_initialize =
      life_.phase() == PREPARING && !is_over && view_.start_from().empty() && lost.ordinal() == 0;
  finished_.Forget(lost.id());
  if ((waits && !is_over) || was_to_initialize) {
    Vacate({WORKER, lost.ordinal()}, member, now);
  }
  ChangeView(WithoutMember(view_, lost.id(), waits, progress_.step() + 1), now);
  SaveIfAllHaveFinished(now);
}

std::optional<CoordinatorCore::Loss> CoordinatorCore::HowLost(uint64_t member) const {
  const Caller* const found = members_.Find(member);
  if (found == nullptr) return std::nullopt;
  return Loss{found->member.address(), found->heard_at,
              found->fenced ? found->why_fenced : "it said that it leaves"};
}

void CoordinatorCore::TakeIn(const Caller& caller, absl::Time now) {
  if (joint()) return FillPlaces(now);
  const Member& member = caller.member;
  // Who comes after the last step sees the end of the job as all do, and takes no part.
  if (!InPhase({PREPARING, TRAINING}).ok() || finished_.begun() || caller.drained) return;
  if (TakesPart(view_, member.id()) || members_.Holder(WORKER, member.ordinal()) != &caller) return;
  vacancies_.erase({WORKER, member.ordinal()});
  // It pulls when it has entered, which is after this.
  members_.RaiseParameters(member.id(), progress_.step());
  ChangeView(WithMember(view_, member, shape(), progress_.step() + 1), now);
}

bool CoordinatorCore::AllHaveFinished() const {
  bool anybody = false;
  for (const Contributor& contributor : view_.contributors()) {
    // Of a pipeline its worker says it for all.
    const int workers = shape().stages != 0 ? 1 : contributor.part_members_size();
    for (int part = 0; part < workers; ++part) {
      const uint64_t worker = contributor.part_members(part);
      if (worker == 0 && !joint()) continue;
      if (!finished_.has(worker)) return false;
      anybody = true;
    }
  }
  return anybody;
}

bool CoordinatorCore::HasFinished(const Member& member) const {
  return finished_.has(member.role() == STAGE ? WorkerOf(view_, member.id()) : member.id());
}

bool CoordinatorCore::IsApart(const Caller& caller) const {
  return caller.member.role() != SHARD && !TakesPart(view_, caller.member.id()) &&
         (caller.drained || InPhase({PREPARING, TRAINING, SAVING}).ok()) && !life_.ended();
}

absl::Status CoordinatorCore::InView(const Caller& worker) const {
  if (TakesPart(view_, worker.member.id())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(Describe(worker.member), " takes no part in the job: no view names it"));
}

uint64_t CoordinatorCore::LastVersion() const {
  const Cluster& cluster = options_.job.cluster();
  if (options_.job.has_steps() || (MinWorkers() == cluster.workers() && !has_scaled_)) {
    return std::max<uint64_t>(view_.total_steps(), progress_.step());
  }
  // With one worker it takes the most steps, and each change may leave one step without a sample.
  // The coordinator may not yet know the verdict of the version that a worker has evaluated.
  const uint64_t most = LastStep(options_.job, view_.data_position(), view_.start_version(),
                                 view_.training_samples(), /*contributors=*/1);
  return std::max(most, most + view_.view_epoch());
}

}  // namespace parley
