// What happens because time goes on: leases end, stalls are found, the process may go.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/view_change.h"

namespace parley {
namespace {

// How long after preemption_grace the coordinator still waits for members to leave.
// Its own end takes up to 3 s more, in which it still answers at first, and Slurm leaves 5 s after
// the default.
constexpr absl::Duration kAfterGrace = absl::Milliseconds(500);

// A cause is a line that everybody prints.
constexpr size_t kMostNamed = 8;

// `moved`: when the job, or a member, last got on by itself. `came`: when somebody came or went,
// for whom that one may have waited. It counts too, but not for ever: else one that is admitted and
// lost again and again would hide for ever that others stand still.
absl::Time CountingThoseThatCome(absl::Time moved, absl::Time came, absl::Duration timeout) {
  return std::max(moved, std::min(came, moved + 2 * timeout));
}

}  // namespace

void CoordinatorCore::GotOn(absl::Time now) {
  last_event_ = now;
  first_vacant_.clear();
}

void CoordinatorCore::Came(bool is_awaited, absl::Time now) {
  (is_awaited ? last_event_ : view_changed_at_) = now;
}

std::pair<size_t, size_t> CoordinatorCore::Gathered() const {
  return {members_.Count(SHARD) + members_.Count(STAGE) + members_.Count(WORKER), models_.count()};
}

void CoordinatorCore::CountGathered(absl::Time now) {
  const auto gathered = Gathered();
  Came(gathered.first > most_gathered_.first || gathered.second > most_gathered_.second, now);
  most_gathered_ = {std::max(gathered.first, most_gathered_.first),
                    std::max(gathered.second, most_gathered_.second)};
}

bool CoordinatorCore::HasJustCome(const Caller& entry, absl::Time when) const {
  // Whoever was there when the job last got on, or has been for so long, has done more than to
  // load.
  return entry.joined_at > std::max(last_event_, resumed_at_) &&
         when - entry.joined_at < options_.stall_timeout;
}

void CoordinatorCore::SeeOff(const Caller& gone) {
  if (!HasJustCome(gone, gone.moved_at)) gone_moved_at_ = std::max(gone_moved_at_, gone.moved_at);
}

absl::Time CoordinatorCore::LastEvent(const Missing& missing) const {
  absl::Time moved = std::max({last_event_, gone_moved_at_, resumed_at_});
  absl::Time came = std::max(view_changed_at_, heard_again_at_);
  for (const Caller* entry : missing.are_awaited) {
    absl::Time& counts = HasJustCome(*entry, entry->progressed_at) ? came : moved;
    counts = std::max(counts, entry->progressed_at);
  }
  return CountingThoseThatCome(moved, came, TimeoutOf(missing));
}

absl::Time CoordinatorCore::GotOnWhileGathering(const Caller& entry) const {
  return CountingThoseThatCome(std::max(entry.progressed_at, resumed_at_), heard_again_at_,
                               options_.stall_timeout);
}

void CoordinatorCore::Tick(absl::Time now, Replies& replies) {
  if (now - last_tick_ > options_.liveness / 2) {
    members_.GrantLeases(now);
    resumed_at_ = now;
  }
  last_tick_ = now;
  // Whoever was told to end has no time to find out who is cut off.
  if (generation_ != 0 && now >= preemption_end()) EndPreempted(now);
  if (generation_ != 0 && !life_.ended() && !IsAlone(now)) {
    EndLeases(now, replies);
    EndDrains(now, replies);
    GoBackIfShardsAreThere(now);
    // Before stalls: who stands still may only wait for the replacement.
    EndWait(now);
    if (!life_.ended()) EndStall(now);
    EndSlowCheckpoint(now);
    AskIfDue(now);
  }
  // Who is heard of right after the end may have sent that before, and be cut off from the answer.
  if (life_.ended() && told_after_end_ == absl::InfiniteFuture() &&
      members_.HeardSince(ended_at_ + options_.liveness / 2)) {
    told_after_end_ = now;
  }
  TellWatchers(replies);
  watchers_.Expire(now, replies);
}

bool CoordinatorCore::IsAlone(absl::Time now) {
  if (options_.autonomy == absl::ZeroDuration()) return false;
  const absl::Time heard = members_.LastHeard();
  if (heard == absl::InfinitePast()) {  // there is nobody to be heard of
    alone_ = false;
    return false;
  }
  const absl::Duration silence = now - heard;
  // Two heartbeats of everybody are missing; each comes every liveness / 4.
  if (silence > options_.liveness / 2) {
    alone_ = true;
    return silence < options_.liveness + options_.autonomy;
  }
  if (alone_) {
    // The first one is heard of again. The others' heartbeats may take as long.
    alone_ = false;
    // Few are there while members gather, be it one that is late now and then: that counts no
    // longer than who comes.
    (life_.phase() == GATHERING ? heard_again_at_ : resumed_at_) = now;
    members_.GrantLeases(now);
  }
  return false;
}

void CoordinatorCore::EndLeases(absl::Time now, Replies& replies) {
  // The one silent for longest first. Each round fences one or ends the job.
  while (!life_.ended()) {
    const Caller* lost = members_.Expired(now);
    if (lost == nullptr) return;
    FirstCause cause = LostMember(lost->member, lost->heard_at, now, progress_.step());
    if (life_.phase() == GATHERING) {
      LoseGathering(*lost, std::move(cause), now, replies);
    } else if (lost->member.role() == SHARD) {
      LoseShard(*lost, std::move(cause), now, replies);
    } else {
      LoseContributing(*lost, std::move(cause), now, replies);
    }
  }
}

void CoordinatorCore::EndWait(absl::Time now) {
  for (const auto& [ordinal, vacancy] : lost_shards_) {
    if (now - std::max(vacancy.since, resumed_at_) < options_.stall_timeout) continue;
    EndJob(lost_cause_.value_or(LostMember(vacancy.lost, vacancy.heard_at, now, progress_.step())),
           now);
    return;
  }
  const Vacancy* longest = nullptr;
  for (const auto& [place, vacancy] : vacancies_) {
    if (longest == nullptr || vacancy.since < longest->since) longest = &vacancy;
  }
  if (longest == nullptr || now - std::max(longest->since, resumed_at_) < options_.stall_timeout) {
    return;
  }
  EndJob(LostMember(longest->lost, longest->heard_at, now, progress_.step()), now);
}

bool CoordinatorCore::MayExit(absl::Time now) const {
  if (!life_.ended()) return false;
  // Who was told to end has no time for those that are still at work; they have mostly heard it.
  if (life_.phase() == FAILED && now >= preemption_end() + kAfterGrace) return true;
  if (life_.phase() == FAILED && now - ended_at_ >= options_.liveness) {
    // A member that is silent now may be dead. But where no member at all is heard of, it is this
    // coordinator that is cut off, and nobody knows the cause; they have as long to ask when they
    // can.
    const bool at_once = told_after_end_ - ended_at_ <= options_.liveness / 2;
    if (at_once || now - told_after_end_ >= options_.liveness) return true;
  }
  // Whoever is heard of and has not left by then hangs. Those that are cut off have their time too.
  const absl::Duration longest =
      std::max(options_.stall_timeout, options_.liveness + options_.autonomy);
  if (life_.phase() == FINISHED && now - std::max(ended_at_, resumed_at_) >= longest) return true;
  if (!members_.NotGone(now).empty()) return false;
  // Those that are silent may be cut off with this coordinator. They go on without it for so long,
  // and should hear that the job has finished.
  return options_.autonomy == absl::ZeroDuration() || view_.view_epoch() == 0 ||
         now - members_.LastHeard() >= options_.liveness + options_.autonomy;
}

std::vector<std::string> CoordinatorCore::StillThere(absl::Time now) const {
  std::vector<std::string> who;
  for (const Caller* entry : members_.NotGone(now)) who.push_back(Describe(entry->member));
  return who;
}

void CoordinatorCore::EndDeadlock(absl::Time now) {
  // EndWait and EndPreempted see to these. Where all are about to go back, which waits for a
  // manifest, the shard that has come has not been there for longer than that.
  if (!vacancies_.empty() || preemption_) return;
  absl::Time moved = std::max({last_event_, training_since_, gone_moved_at_, resumed_at_});
  absl::Time came = view_changed_at_;
  for (const Caller* entry : members_.Holders()) {
    const bool takes_part = TakesPart(view_, entry->member.id());
    if (takes_part || entry->member.role() == SHARD) {
      absl::Time& counts = HasJustCome(*entry, entry->moved_at) ? came : moved;
      counts = std::max(counts, entry->moved_at);
    }
    // EndDrains lets it go, if it does not by itself, and the others may only wait for it.
    if (takes_part && entry->drained) came = std::max(came, entry->drained_at);
  }
  if (now - CountingThoseThatCome(moved, came, options_.stall_timeout) < options_.stall_timeout) {
    return;
  }
  std::vector<std::string> known;  // of whom it is known what they wait for
  if (going_back_) {
    known.push_back(absl::StrCat("the coordinator: writes the manifest of ", checkpoint_.folder()));
  }
  size_t others = 0;
  for (const Caller* entry : members_.Holders()) {
    const Member& member = entry->member;
    // A shard only where it has asked another member something.
    const bool tells = member.role() == SHARD && !entry->waits_for.empty();
    if (!tells && (!TakesPart(view_, member.id()) || HasFinished(member) || entry->drained)) {
      continue;
    }
    if (known.size() < kMostNamed && !entry->waits_for.empty()) {
      known.push_back(absl::StrCat(Describe(member), ": ", entry->waits_for));
    } else {
      ++others;
    }
  }
  if (known.empty() && others == 0) return;  // EndDrains sees to them
  if (others != 0) known.push_back(absl::StrCat(others, known.empty() ? "" : " more", " at work"));
  EndJob(
      OfCoordinator(address_,
                    absl::StrCat("nobody has got on since ", FormatUtc(moved), " (",
                                 absl::ToInt64Seconds(now - moved),
                                 " s), though all are heard of: they wait for each other. Two may "
                                 "not reach each other, or one computes for ever: ",
                                 absl::StrJoin(known, "; ")),
                    /*preempted=*/false, progress_.step()),
      now);
}

void CoordinatorCore::EndStall(absl::Time now) {
  // All stand still, and EndWait sees to it.
  if (!lost_shards_.empty()) return;
  if (life_.phase() == TRAINING) {
    // The one that has stood still for longest; the others may only wait for it.
    const Caller* stalled = nullptr;
    absl::Time since = now - options_.stall_timeout;
    absl::Time stands_still_since;
    for (const Caller* entry : members_.Holders()) {
      if (!TakesPart(view_, entry->member.id()) || HasFinished(entry->member)) continue;
      if (entry->drained) continue;  // EndDrains sees to it
      // Until the view changed they may have waited for whoever was lost.
      const absl::Time by_itself = std::max({entry->progressed_at, training_since_, resumed_at_});
      const absl::Time moved =
          CountingThoseThatCome(by_itself, view_changed_at_, options_.stall_timeout);
      if (moved > since || (stalled != nullptr && moved >= since)) continue;
      stalled = entry;
      since = moved;
      stands_still_since = by_itself;
    }
    if (stalled != nullptr) {
      EndJob(StalledMember(stalled->member, stands_still_since, now, progress_.step()), now);
      return;
    }
    if (!AllHaveFinished()) return EndDeadlock(now);
  }
  const Missing missing = WhatIsMissing();
  if (life_.phase() == GATHERING) {
    // However long the others may take to come.
    for (const Caller* entry : missing.are_awaited) {
      const absl::Time got_on = GotOnWhileGathering(*entry);
      if (now - got_on < options_.stall_timeout) continue;
      EndJob(StalledMember(entry->member, got_on, now, progress_.step()), now);
      return;
    }
  }
  const absl::Time moved = LastEvent(missing);
  if (now - moved < TimeoutOf(missing)) return;
  EndJob(OfCoordinator(address_,
                       absl::StrCat("has waited in vain since ", FormatUtc(moved), " (",
                                    absl::ToInt64Seconds(now - moved),
                                    " s): ", absl::StrJoin(missing.who, "; ")),
                       /*preempted=*/false, progress_.step()),
         now);
}

}  // namespace parley
