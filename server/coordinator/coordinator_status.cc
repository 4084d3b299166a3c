// What the coordinator tells: to members (Watch) and to operators (GetStatus).
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/consistency.h"
#include "common/job/data_division.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/view_change.h"

namespace parley {

SharedJobState CoordinatorCore::State() {
  const std::pair<uint64_t, uint64_t> at = {revision_, durable_revision_};
  if (state_ == nullptr || state_at_ != at) {
    state_ = std::make_shared<const WatchReply>(MakeState());
    state_at_ = at;
  }
  return state_;
}

WatchReply CoordinatorCore::MakeState() const {
  WatchReply state;
  state.set_revision(revision_);
  state.set_generation(generation_);
  state.set_phase(life_.phase());
  if (view_.view_epoch() != 0) *state.mutable_view() = view_;
  if (!life_.ended()) {
    state.set_checkpoints_asked(checkpoints_asked_);
    state.set_checkpoint_ended(checkpoint_.ended());
    if (auto order = checkpoint_.order()) *state.mutable_checkpoint() = *std::move(order);
  }
  if (cause_) *state.mutable_cause() = *cause_;
  if (life_.phase() == FINISHED) state.set_checkpoint_directory(checkpoint_.whole_folder());
  return state;
}

std::vector<const CoordinatorCore::Caller*> CoordinatorCore::InitialValuesFrom() const {
  std::vector<const Caller*> givers;
  if (!view_.start_from().empty()) return givers;
  for (const Contributor& contributor : view_.contributors()) {
    if (contributor.ordinal() != 0) continue;
    for (const uint64_t member : contributor.part_members()) {
      const Caller* const giver = members_.Find(member);
      if (giver == nullptr) continue;
      // A pipeline's worker has none.
      if (shape().stages == 0 || giver->member.role() == STAGE) givers.push_back(giver);
      if (shape().group > 1) break;  // the others of a node group have the same, and wait
    }
  }
  return givers;
}

CoordinatorCore::Missing CoordinatorCore::WhatIsMissing() const {
  Missing missing;
  const auto miss = [&](Role role, uint32_t ordinal, std::string who) {
    missing.who.push_back(std::move(who));
    WaitedFor& on = missing.on.emplace_back();
    on.set_role(role);
    on.set_ordinal(ordinal);
  };
  const auto await = [&](const Caller& entry, const char* what) {
    miss(entry.member.role(), entry.member.ordinal(), absl::StrCat(Describe(entry.member), what));
    missing.are_awaited.push_back(&entry);
  };
  for (const auto& [ordinal, vacancy] : lost_shards_) {
    miss(SHARD, ordinal,
         absl::StrCat(
             Describe(vacancy.lost), " has not been heard of since ", FormatUtc(vacancy.heard_at),
             "; its place waits for another shard, then all go back to ", GoesBackTo().folder));
  }
  for (const auto& [place, vacancy] : vacancies_) {
    miss(place.first, place.second,
         absl::StrCat(Describe(vacancy.lost), " has not been heard of since ",
                      FormatUtc(vacancy.heard_at), "; its place waits for another ",
                      RoleWord(place.first)));
  }
  switch (life_.phase()) {
    case GATHERING:
      for (const Role role : {SHARD, STAGE, WORKER}) {
        uint32_t here = members_.Count(role);
        uint32_t to_come = members_.places(role) - here;
        for (uint32_t ordinal = 0; here != 0 || to_come != 0; ++ordinal) {
          const Caller* entry = members_.Holder(role, ordinal);
          if (entry == nullptr && to_come == 0) continue;
          if (entry != nullptr && entry->drained) continue;
          --(entry == nullptr ? to_come : here);
          if (entry == nullptr) {
            miss(role, ordinal, absl::StrCat(RoleWord(role), " ", ordinal, " has not joined"));
          } else if (role != SHARD && !models_.registered(entry->member.id())) {
            await(*entry, " has not registered its model");
          }
        }
      }
      break;
    case PREPARING:
      for (uint32_t ordinal = 0; ordinal < ready_shards_.size(); ++ordinal) {
        const Caller* const shard = members_.Holder(SHARD, ordinal);
        if (!ready_shards_[ordinal] && shard != nullptr) await(*shard, " is not ready");
      }
      for (const Caller* giver : InitialValuesFrom()) {
        miss(giver->member.role(), giver->member.ordinal(),
             absl::StrCat(Describe(giver->member), " gives the initial values"));
      }
      break;
    case TRAINING:
      if (AllHaveFinished() && lost_shards_.count(view_.step_leader()) == 0) {
        await(*members_.Holder(SHARD, view_.step_leader()),
              absl::StrCat(" has not reported the verdict of step ", progress_.step() + 1).c_str());
      }
      break;
    case SAVING:
      if (!checkpoint_.order()) {
        miss(ROLE_UNSPECIFIED, 0, "the coordinator's own files");
        break;
      }
      for (uint32_t ordinal = 0; ordinal < ready_shards_.size(); ++ordinal) {
        if (!checkpoint_.reported(ordinal) && lost_shards_.count(ordinal) == 0) {
          await(*members_.Holder(SHARD, ordinal), " has not written its file of the checkpoint");
        }
      }
      break;
    default:
      break;
  }
  return missing;
}

absl::Duration CoordinatorCore::TimeoutOf(const Missing& missing) const {
  // Those that are there, and have not registered their models, have no longer than in any phase.
  const bool some_are_to_come = missing.who.size() > missing.are_awaited.size();
  return life_.phase() == GATHERING && some_are_to_come ? options_.gather_timeout
                                                        : options_.stall_timeout;
}

uint64_t CoordinatorCore::ExpectedMembers() const {
  const uint64_t wanted = members_.places(SHARD) + members_.places(STAGE) + members_.places(WORKER);
  if (view_.view_epoch() == 0) return wanted;
  uint64_t expected = members_.Holders().size();
  for (const auto& [place, vacancy] : vacancies_) {
    if (members_.Holder(place.first, place.second) == nullptr) ++expected;
  }
  expected += lost_shards_.size();
  // Nothing waits for a lost worker where the others go on; it is wanted all the same.
  return std::max(expected, wanted);
}

std::optional<uint64_t> CoordinatorCore::StalenessOf(const Caller& caller) const {
  if (life_.phase() != TRAINING || !IsClocked(options_.job)) return std::nullopt;
  if (caller.member.role() != WORKER || caller.left || !TakesPart(view_, caller.member.id())) {
    return std::nullopt;
  }
  // A coordinator that has just taken over has to hear of them first.
  if (!caller.parameters) return std::nullopt;
  return progress_.step() - std::min(progress_.step(), *caller.parameters);
}

absl::Status CoordinatorCore::OfThisJob(const std::string& job) const {
  if (job.empty() || job == options_.job.name()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("this is the coordinator of job '", options_.job.name(),
                                          "', not of '", job, "'"));
}

absl::StatusOr<GetStatusReply> CoordinatorCore::GetStatus(const GetStatusRequest& request,
                                                          absl::Time now) const {
  if (absl::Status status = OfThisJob(request.job()); !status.ok()) return status;
  GetStatusReply reply;
  reply.set_job(options_.job.name());
  reply.set_phase(life_.phase());
  for (const Caller* entry : members_.Holders()) {
    MemberStatus* status = reply.add_members();
    *status->mutable_member() = entry->member;
    status->set_step(entry->step);
    status->set_seconds_since_heartbeat(absl::ToDoubleSeconds(now - entry->heard_at));
    status->set_left(entry->left);
    status->set_drained(entry->drained);
    if (const auto staleness = StalenessOf(*entry)) status->set_staleness(*staleness);
  }
  reply.set_expected_members(ExpectedMembers());
  reply.set_step(progress_.step());
  // Others take part than at the start: where it ends if it goes on like this.
  reply.set_total_steps(view_.view_epoch() <= 1
                            ? view_.total_steps()
                            : LastStep(options_.job, progress_.position(), progress_.step(),
                                       view_.training_samples(),
                                       LeastCounted(options_.job, view_.contributors_size())));
  reply.set_data_epoch(progress_.data_epoch());
  if (options_.job.has_epochs()) reply.set_epochs(options_.job.epochs());
  reply.set_samples(progress_.samples());
  reply.set_loss(progress_.loss());
  reply.set_samples_per_second(progress_.SamplesPerSecond(now));
  reply.set_seconds_training(progress_.SecondsTraining(now));
  for (Evaluation& evaluation : evaluations_.Whole()) {
    *reply.add_evaluations() = std::move(evaluation);
  }
  for (const auto& [phase, seconds] : finished_.seconds()) {
    PhaseSeconds* sum = reply.add_phase_seconds();
    sum->set_phase(phase);
    sum->set_seconds(seconds);
  }
  reply.set_skipped_steps(progress_.skipped());
  reply.set_retried_attempts(progress_.retried());
  if (cause_) *reply.mutable_cause() = *cause_;
  reply.set_checkpoint_directory(checkpoint_.whole_folder());
  reply.set_checkpoint_step(checkpoint_.whole_step());
  reply.set_checkpoints_failed(checkpoint_.failed());
  reply.set_checkpoint_error(checkpoint_.error());
  reply.set_shards_lost(shards_lost_);
  reply.set_steps_lost(steps_lost_);
  reply.set_job_epoch(job_epoch_);
  reply.set_view_epoch(view_.view_epoch());
  reply.set_generation(generation_);
  reply.set_preemption(preemption());
  reply.set_wanted_workers(wanted_workers());
  // Only what the job waits for: a worker whose calls fail gives it as the reason.
  reply.set_what_is_missing(absl::StrJoin(WhatIsMissing().who, "; "));
  return reply;
}

}  // namespace parley
