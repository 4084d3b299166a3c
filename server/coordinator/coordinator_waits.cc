// What the coordinator tells of its waits: those of the present phase, and heartbeats that are
// late.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/data_division.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/view_change.h"

namespace parley {

std::vector<Wait> CoordinatorCore::Waits(absl::Time now) const {
  std::vector<Wait> waits;
  if (generation_ == 0 || life_.ended()) return waits;
  const auto add = [&](std::string what, absl::Time since, absl::Time until) -> Wait& {
    Wait& wait = waits.emplace_back();
    wait.set_what(std::move(what));
    wait.set_seconds(std::max(0.0, absl::ToDoubleSeconds(now - since)));
    wait.set_seconds_left(std::max(0.0, absl::ToDoubleSeconds(until - now)));
    wait.set_step(progress_.step());
    return wait;
  };
  const auto wait_for = [](Wait& wait, const Caller& entry) {
    WaitedFor* on = wait.add_on();
    on->set_role(entry.member.role());
    on->set_ordinal(entry.member.ordinal());
  };

  const Missing missing = WhatIsMissing();
  const absl::Time event = LastEvent(missing);
  std::vector<absl::Time> vacant;  // they come first, in this order
  for (const auto& [ordinal, vacancy] : lost_shards_) vacant.push_back(vacancy.since);
  for (const auto& [place, vacancy] : vacancies_) vacant.push_back(vacancy.since);
  for (size_t i = 0; i < missing.who.size(); ++i) {
    absl::Time since = i < vacant.size() ? std::max(vacant[i], resumed_at_) : event;
    absl::Time until = since + TimeoutOf(missing);
    const Caller* const is_there =
        life_.phase() == GATHERING ? members_.Holder(missing.on[i].role(), missing.on[i].ordinal())
                                   : nullptr;
    if (is_there != nullptr) {  // it has no longer than in any phase
      since = GotOnWhileGathering(*is_there);
      until = std::min(until, since + options_.stall_timeout);
    }
    Wait& wait = add(missing.who[i], since, until);
    if (missing.on[i].role() != ROLE_UNSPECIFIED) *wait.add_on() = missing.on[i];
  }

  const auto& job = options_.job;
  const bool all_decided =
      (job.has_steps() || job.has_epochs()) && IsDone(job, progress_.position(), progress_.step());
  for (const Caller* entry : members_.Holders()) {
    const uint64_t id = entry->member.id();
    if (life_.phase() == TRAINING && (all_decided || finished_.begun()) &&
        entry->member.role() == WORKER && TakesPart(view_, id) && !finished_.has(id)) {
      wait_for(add(absl::StrCat(Describe(entry->member), " has not finished"), event,
                   event + options_.stall_timeout),
               *entry);
    }
    if (entry->left || now - entry->heard_at < options_.liveness / 2) continue;
    wait_for(add(absl::StrCat("a heartbeat of ", Describe(entry->member)), entry->heard_at,
                 entry->lease_from + options_.liveness),
             *entry);
  }
  return waits;
}

}  // namespace parley
