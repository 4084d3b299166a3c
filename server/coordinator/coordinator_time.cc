// What happens because time goes on: leases end, stalls are found, the process may go.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/coordinator.h"

namespace parley {

void CoordinatorCore::Tick(absl::Time now, Replies& replies) {
  if (now - last_tick_ > options_.liveness / 2) {
    members_.GrantLeases(now);
    resumed_at_ = now;
  }
  last_tick_ = now;
  if (generation_ != 0 && !life_.ended()) {
    if (const Caller* lost = members_.Expired(now)) {
      EndJob(LostMember(lost->member, lost->heard_at, now, progress_.step()), now);
    } else {
      EndStall(now);
    }
  }
  TellWatchers(replies);
  if (watchers_.AnyDue(now)) watchers_.Expire(now, State(), replies);
}

bool CoordinatorCore::MayExit(absl::Time now) const {
  if (!life_.ended()) return false;
  if (life_.phase() == FAILED && now - ended_at_ >= options_.liveness) return true;
  return members_.AllGone(now);
}

void CoordinatorCore::EndStall(absl::Time now) {
  if (life_.phase() == TRAINING) {
    // The one that has stood still for longest; the others may only wait for it.
    const Caller* stalled = nullptr;
    absl::Time since = now - options_.stall_timeout;
    for (const Caller* entry : members_.Holders()) {
      if (entry->member.role() != WORKER || finished_.has(entry->member.id())) continue;
      const absl::Time moved = std::max({entry->progressed_at, training_since_, resumed_at_});
      if (moved > since || (stalled != nullptr && moved >= since)) continue;
      stalled = entry;
      since = moved;
    }
    if (stalled != nullptr) {
      EndJob(StalledMember(stalled->member, since, now, progress_.step()), now);
      return;
    }
    if (finished_.count() != members_.places(WORKER)) return;
  }
  const Missing missing = WhatIsMissing();
  absl::Time moved = std::max(last_event_, resumed_at_);
  for (const Caller* entry : missing.are_awaited) moved = std::max(moved, entry->progressed_at);
  if (now - moved < options_.stall_timeout) return;
  EndJob(OfCoordinator(address_,
                       absl::StrCat("has waited in vain since ", FormatUtc(moved), " (",
                                    absl::ToInt64Seconds(now - moved),
                                    " s): ", absl::StrJoin(missing.who, "; ")),
                       /*preempted=*/false, progress_.step()),
         now);
}

}  // namespace parley
