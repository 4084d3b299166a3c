// What must not be lost with the process: written down, and read back by the next coordinator.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/view_change.h"

namespace parley {

CoordinatorState CoordinatorCore::DurableState() const {
  CoordinatorState state;
  state.set_job_fingerprint(options_.fingerprint);
  state.set_phase(life_.phase());
  state.set_job_epoch(job_epoch_);
  members_.Write(state);
  if (view_.view_epoch() != 0) *state.mutable_view() = view_;
  models_.Write(state);
  for (uint32_t shard = 0; shard < ready_shards_.size(); ++shard) {
    if (ready_shards_[shard]) state.add_ready_shards(shard);
  }
  const auto log = [&](const Vacancy& vacancy) {
    LoggedVacancy* logged = state.add_vacancies();
    *logged->mutable_lost() = vacancy.lost;
    logged->set_heard_unix_micros(absl::ToUnixMicros(vacancy.heard_at));
    logged->set_since_unix_micros(absl::ToUnixMicros(vacancy.since));
  };
  for (const auto& [place, vacancy] : vacancies_) log(vacancy);
  for (const auto& [ordinal, vacancy] : lost_shards_) log(vacancy);
  state.set_going_back(going_back_);
  if (lost_cause_) *state.mutable_lost_cause() = *lost_cause_;
  state.set_shards_lost(shards_lost_);
  state.set_steps_lost(steps_lost_);
  progress_.Write(*state.mutable_progress());
  evaluations_.Write(state);
  finished_.Write(state);
  if (cause_) *state.mutable_cause() = *cause_;
  checkpoint_.Write(state);
  state.set_revision(revision_);
  state.set_over(closed_ && life_.ended());
  if (has_scaled_) state.set_wanted_workers(wanted_workers());
  state.set_stopped(stopped_);
  if (preemption_) *state.mutable_preemption() = *preemption_;
  state.set_checkpoints_asked(checkpoints_asked_);
  if (damage_) *state.mutable_damage() = *damage_;
  state.set_started_from(started_from_);
  for (const std::string& folder : damaged_checkpoints_) state.add_damaged_checkpoints(folder);
  return state;
}

absl::Status CoordinatorCore::Restore(const CoordinatorState& state) {
  if (state.job_fingerprint() != options_.fingerprint) {
    return absl::InvalidArgumentError(
        absl::StrCat("job '", options_.job.name(), "' has run with another job file (fingerprint ",
                     state.job_fingerprint(), ", this one has ", options_.fingerprint,
                     "): start its coordinator with the same file, or choose another --out"));
  }
  if (!Phase_IsValid(state.phase()) || state.phase() == PHASE_UNSPECIFIED ||
      state.job_epoch() == 0) {
    return absl::DataLossError("no phase or epoch");
  }
  if (state.has_wanted_workers()) {
    if (joint() || state.wanted_workers() == 0 || state.wanted_workers() > kMostMembers) {
      return absl::DataLossError(absl::StrCat("it wants ", state.wanted_workers(), " workers"));
    }
    has_scaled_ = true;
    members_.SetPlaces(WORKER, state.wanted_workers());
  }
  stopped_ = state.stopped();
  if (absl::Status status = members_.Read(state); !status.ok()) return status;
  life_.Restore(state.phase());
  job_epoch_ = state.job_epoch();
  const Caller* first = members_.Find(state.model_from());
  models_.Read(state, first != nullptr ? first->member : Member());
  if (absl::Status status = RestoreView(state); !status.ok()) return status;
  finished_.Read(state);
  if (state.has_cause()) cause_ = state.cause();
  if (state.has_preemption()) preemption_ = state.preemption();
  checkpoints_asked_ = state.checkpoints_asked();
  if (state.has_checkpoint()) {
    // Of a failed job too: what its shards have written is as good as it was.
    auto work = checkpoint_.Read(state.checkpoint(), members_.places(SHARD));
    if (work) file_work_.push_back(*std::move(work));
  }
  damaged_checkpoints_.insert(state.damaged_checkpoints().begin(),
                              state.damaged_checkpoints().end());
  for (FileWork& work : file_work_) {
    work.damaged =
        work.kind == FileWork::Kind::kCreateFolder && damaged_checkpoints_.count(work.folder) != 0;
  }
  if (state.has_damage()) FindPrevious(state.damage(), absl::InfinitePast());
  revision_ = told_revision_ = state.revision() + 1;
  return CheckRestored();
}

absl::Status CoordinatorCore::RestoreView(const CoordinatorState& state) {
  for (const uint32_t shard : state.ready_shards()) {
    if (shard >= ready_shards_.size()) return absl::DataLossError("no such shard");
    ready_shards_[shard] = true;
  }
  for (const LoggedVacancy& logged : state.vacancies()) {
    const Member& lost = logged.lost();
    Vacancy& vacancy = lost.role() == SHARD ? lost_shards_[lost.ordinal()]
                                            : vacancies_[{lost.role(), lost.ordinal()}];
    vacancy = {lost, absl::FromUnixMicros(logged.heard_unix_micros()),
               absl::FromUnixMicros(logged.since_unix_micros())};
  }
  going_back_ = state.going_back();
  if (state.has_lost_cause()) lost_cause_ = state.lost_cause();
  shards_lost_ = state.shards_lost();
  steps_lost_ = state.steps_lost();
  if (!state.has_view()) return absl::OkStatus();
  view_ = state.view();
  started_from_ = state.started_from();
  // Of an earlier release, which did not log it: known until the job goes back.
  if (started_from_.empty() && job_epoch_ == 1) started_from_ = view_.start_from();
  progress_.Start(view_.start_version(), view_.data_position(), view_.training_samples());
  if (absl::Status status = progress_.Read(state.progress()); !status.ok()) return status;
  evaluations_.Start(WorkersOf(view_, shape()), view_.test_samples());
  // The first view has epoch 1.
  if (view_.view_epoch() > 1) evaluations_.WorkersChanged();
  evaluations_.Read(state);
  return absl::OkStatus();
}

absl::Status CoordinatorCore::CheckRestored() const {
  const bool needs_view = InPhase({PREPARING, TRAINING, SAVING, FINISHED}).ok();
  if (view_.view_epoch() == 0) {
    return needs_view ? absl::DataLossError("no view") : absl::OkStatus();
  }
  for (uint32_t shard = 0; shard < members_.places(SHARD); ++shard) {
    if (members_.Holder(SHARD, shard) == nullptr && lost_shards_.count(shard) == 0) {
      return absl::DataLossError(absl::StrCat("a view, but no shard ", shard));
    }
  }
  const auto& contributors = view_.contributors();
  const bool right =
      view_.step_leader() < members_.places(SHARD) && view_.training_samples() != 0 &&
      std::all_of(contributors.begin(), contributors.end(), [&](const Contributor& contributor) {
        return contributor.part_members_size() == static_cast<int>(shape().parts());
      });
  return right ? absl::OkStatus() : absl::DataLossError("a view that is none");
}

}  // namespace parley
