// Shard in bounded and async: the step leader's leases, the floor, and barriers (docs/clocked.md).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/consistency.h"
#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/since_text.h"

namespace parley {
const ClockGate* Shard::clock_gate() const {
  return clocked_ != nullptr && clocked_->gate.has_value() ? &*clocked_->gate : nullptr;
}

uint64_t Shard::last_decided() const {
  return clock_gate() != nullptr ? clock_gate()->version() : version_;
}

void Shard::StartClocks(absl::Time now) {
  const ClusterView& view = routing_->view();
  clocked_ = std::make_unique<Clocked>(job_, table_.get(), view);
  clocked_->since = now;
  if (!routing_->is_leader()) return;
  clocked_->gate.emplace(job_, view.training_samples(), view.start_version(), view.data_position());
  marks_.emplace(job_);
}

std::map<uint32_t, uint32_t> Shard::Present() const {
  std::map<uint32_t, uint32_t> present;
  for (const Contributor& contributor : routing_->view().contributors()) {
    if (routing_->SenderOf(contributor.ordinal(), 0) == 0) continue;
    present[contributor.ordinal()] = contributor.attempt();
  }
  return present;
}

void Shard::CompleteClock(const CompleteRequest& request, CallTime time, Replies& replies,
                          Done<CompleteReply> done) {
  const auto refuse = [&](absl::Status status) {
    replies.Add<CompleteReply>(std::move(done), std::move(status));
  };
  if (!clocked_->gate.has_value()) return refuse(NotLeader());
  if (!ready()) return refuse(absl::UnavailableError("the step leader has no start values yet"));
  const uint32_t contributor = request.share().contributor();
  if (absl::Status status = FencePart(request.header(), contributor, request.part());
      !status.ok()) {
    return refuse(status);
  }
  if (absl::Status status = CheckAttempt(contributor, request.attempt()); !status.ok()) {
    return refuse(status);
  }
  if (absl::Status status = CheckSize(request); !status.ok()) return refuse(status);
  if (!request.pushed().empty() || !request.pulled().empty()) {
    return refuse(absl::InvalidArgumentError(
        "this job is bounded or async: slices are pushed and pulled by calls of their own"));
  }
  if (absl::Status status = RoomForComplete(request.header().member()); !status.ok()) {
    return refuse(status);
  }
  absl::StatusOr<std::optional<Verdict>> completed = clocked_->gate->Complete(request);
  if (!completed.ok()) return refuse(completed.status());
  ParkedComplete parked;
  parked.step = request.step();
  parked.attempt = request.attempt();
  parked.contributor = contributor;
  parked.member = request.header().member();
  parked.since = time.now;
  parked.deadline = time.deadline;
  parked.done = std::move(done);
  completes_.push_back(std::move(parked));
  if (completed->has_value()) {
    Verdict& verdict = **completed;
    verdict.set_view_epoch(routing_->view().view_epoch());
    if (absl::Status status = decided_.Add(verdict); !status.ok()) return SetError(status, replies);
    ++(verdict.outcome() == Verdict::APPLY ? counts_.verdicts_apply : counts_.verdicts_skip);
    to_report_.push_back(std::move(verdict));
  }
  SettleClocks(time.now, replies);
}

void Shard::ChangeClockedMembers(absl::Time now, Replies& replies) {
  if (error_.has_value()) return;
  const std::map<uint32_t, uint32_t> present = Present();
  if (clocked_->gate.has_value()) {
    ClockGate& gate = *clocked_->gate;
    gate.Change(present, [&](uint32_t contributor) {
      // Of what it sent to other shards this one knows nothing.
      if (routing_->shards() > 1) return true;
      const Lease* const lease = gate.LeaseOf(contributor);
      return lease != nullptr &&
             clocked_->table.HasPushOf({contributor, gate.AttemptOf(contributor), lease->clock()});
    });
  }
  clocked_->table.KeepOnly(present);
  AnswerClockedPulls(replies);
  SettleClocks(now, replies);
}

// After each change of who is where: hands out leases, moves the floor, makes barriers, and
// answers.
void Shard::SettleClocks(absl::Time now, Replies& replies) {
  if (!clocked_->gate.has_value() || error_.has_value()) return;
  if (ready()) {
    EnterParked(replies);
    ClockGate& gate = *clocked_->gate;
    gate.Settle(now, marks_->due());
    TellFloor(now, replies);
    while (gate.barrier().has_value() && clocked_->acknowledged.size() == routing_->shards()) {
      gate.EndBarrier();
      gate.Settle(now, marks_->due());
      TellFloor(now, replies);
    }
    counts_.ranges_cut = former_.ranges_cut + gate.counts().cut;
    counts_.contributions_refused = former_.contributions_refused + gate.counts().refused;
    counts_.checkpoint_barriers = former_.checkpoint_barriers + gate.counts().checkpoint_barriers;
    counts_.checkpoint_barrier_wait =
        former_.checkpoint_barrier_wait + gate.counts().checkpoint_barrier_wait;
  }
  AnswerClocked(replies);
}

void Shard::EnterParked(Replies& replies) {
  for (auto it = enters_.begin(); it != enters_.end();) {
    // By the newest view, which may be newer than the call.
    absl::Status status = FenceMember(it->header);
    if (status.ok()) status = FenceContributor(it->header, it->contributor);
    if (status.ok()) {
      clocked_->gate->Enter(it->contributor, routing_->FindContributor(it->contributor)->attempt());
      ++it;
    } else {
      replies.Add<EnterReply>(std::move(it->done), status);
      it = enters_.erase(it);
    }
  }
}

void Shard::TellFloor(absl::Time now, Replies& replies) {
  const ClockGate& gate = *clocked_->gate;
  const bool new_barrier = gate.barrier().has_value() && clocked_->told_barrier != gate.barrier();
  // Nobody asks for the floor where nobody waits for it.
  const bool new_floor = ClockBound(job_).has_value() && clocked_->told_floor != gate.floor();
  if (!new_barrier && !new_floor) return;
  AdvanceRequest advance;
  *advance.mutable_header() = OwnHeader();
  advance.set_floor(gate.floor());
  advance.set_barrier(gate.barrier().value_or(version_));
  for (const ClockGate::AtWork& one : gate.at_work()) {
    if (one.completed <= gate.floor()) advance.add_at_floor(one.contributor);
  }
  clocked_->told_floor = gate.floor();
  if (new_barrier) {
    clocked_->told_barrier = gate.barrier();
    clocked_->acknowledged = {ordinal_};
    clocked_->marked = MarkForCheckpoint(*gate.barrier());
  }
  advance.set_checkpoint(gate.barrier().has_value() && clocked_->marked);
  // Each says everything: an earlier one that is still here is of no use.
  outbox_.erase(std::remove_if(outbox_.begin(), outbox_.end(),
                               [](const ToShard& message) {
                                 return std::holds_alternative<AdvanceRequest>(message.request);
                               }),
                outbox_.end());
  for (const Member& member : routing_->view().members()) {
    if (member.role() != SHARD || member.ordinal() == ordinal_) continue;
    outbox_.push_back({member.ordinal(), advance});
  }
  ApplyAdvance(advance, now, replies);
}

void Shard::ApplyAdvance(const AdvanceRequest& request, absl::Time now, Replies& replies) {
  if (request.floor() > clocked_->floor || request.barrier() > version_) {
    clocked_->at_floor.assign(request.at_floor().begin(), request.at_floor().end());
    clocked_->since = now;
  }
  clocked_->floor = std::max(clocked_->floor, request.floor());
  if (request.barrier() > version_) {
    clocked_->table.NameVersion();
    version_ = request.barrier();
    const absl::Status kept = request.checkpoint() ? KeepForCheckpoint() : absl::OkStatus();
    if (!kept.ok()) return SetError(kept, replies);
  }
  AnswerClockedPulls(replies);
}

absl::StatusOr<AdvanceReply> Shard::Advance(const AdvanceRequest& request, absl::Time now,
                                            Replies& replies) {
  if (absl::Status status = FenceLeader(request.header()); !status.ok()) return status;
  if (clocked_ == nullptr) {
    return absl::InvalidArgumentError("this job is sync: its workers have no clocks of their own");
  }
  if (!ready()) {
    return absl::UnavailableError(absl::StrCat("shard ", ordinal_, " has no start values yet"));
  }
  ApplyAdvance(request, now, replies);
  return AdvanceReply();
}

void Shard::OnAdvanceReply(uint32_t shard, const AdvanceRequest& request, absl::Time now,
                           Replies& replies) {
  if (clock_gate() == nullptr || error_.has_value() || cause_.has_value()) return;
  if (request.header().job_epoch() != routing_->view().job_epoch()) return;
  if (clock_gate()->barrier() != request.barrier()) return;
  if (routing_->FindShard(shard) == nullptr) return;
  clocked_->acknowledged.insert(shard);
  SettleClocks(now, replies);
}

void Shard::AnswerClocked(Replies& replies) {
  const ClockGate& gate = *clocked_->gate;
  const std::map<uint32_t, uint32_t> present = Present();
  for (auto it = completes_.begin(); it != completes_.end();) {
    const auto place = present.find(it->contributor);
    const CompleteReply* const reply = gate.ReplyOf(it->contributor, it->step);
    if (place == present.end() || place->second != it->attempt) {
      replies.Add<CompleteReply>(std::move(it->done),
                                 absl::AbortedError("another member has this place: rejoin"));
    } else if (reply != nullptr) {
      replies.Add<CompleteReply>(std::move(it->done), *reply);
    } else {
      ++it;
      continue;
    }
    it = completes_.erase(it);
  }
  for (auto it = enters_.begin(); ready() && it != enters_.end();) {
    const Lease* const lease = gate.LeaseOf(it->contributor);
    if (lease == nullptr) {
      ++it;
      continue;
    }
    EnterReply reply;
    reply.set_step(gate.version() + 1);
    reply.set_attempt(gate.AttemptOf(it->contributor));
    *reply.mutable_position() = decided_.position();
    reply.set_view_epoch(routing_->view().view_epoch());
    for (const uint32_t contributor : routing_->Contributors()) reply.add_contributors(contributor);
    *reply.mutable_lease() = *lease;
    replies.Add<EnterReply>(std::move(it->done), std::move(reply));
    it = enters_.erase(it);
  }
}

std::string Shard::WhoHoldsUp(absl::Time now) const {
  if (clock_gate() == nullptr) {
    std::vector<std::string> who;
    for (const uint32_t contributor : clocked_->at_floor) {
      who.push_back(routing_->DescribeSender(contributor, 0));
    }
    return absl::StrCat("the floor is clock ", clocked_->floor, who.empty() ? "" : ", which ",
                        absl::StrJoin(who, ", "), who.empty() ? "" : " had not passed",
                        SinceText(clocked_->since, now));
  }
  const ClockGate& gate = *clock_gate();
  if (gate.barrier().has_value()) {
    std::vector<std::string> who;
    for (const Member& member : routing_->view().members()) {
      if (member.role() != SHARD || clocked_->acknowledged.count(member.ordinal()) != 0) continue;
      who.push_back(routing_->Describe(member.id()));
    }
    return absl::StrCat(absl::StrJoin(who, ", "), " has not named version ", *gate.barrier(),
                        SinceText(clocked_->since, now));
  }
  std::vector<std::string> who;
  for (const ClockGate::AtWork& one : gate.at_work()) {
    who.push_back(absl::StrCat(routing_->DescribeSender(one.contributor, 0), " is at clock ",
                               one.completed + 1, SinceText(one.since, now)));
  }
  if (who.empty()) return "no contributor is at work";
  return absl::StrCat("the floor is clock ", gate.floor(), "; ", absl::StrJoin(who, ", "));
}

}  // namespace parley
