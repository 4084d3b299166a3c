// Links, forks and fetches.
#include "client/reference/reference_holder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/reference/reference_errors.h"

namespace parley {

// --- Links
// -----------------------------------------------------------------------------------------------------------

ReferenceHolder::LinkId ReferenceHolder::LinkTo(const std::string& address, uint64_t owner,
                                                absl::Time now) {
  for (const auto& [id, link] : links_) {
    if (link.address == address && (owner == 0 || link.owner == owner)) return id;
  }
  const LinkId id = next_id_++;
  Link& link = links_[id];
  link.address = address;
  link.owner = owner;
  link.give_up = now + options_.patience;
  link.used_at = now;
  return id;
}

void ReferenceHolder::Connect(const std::string& address, absl::Time now, Replies& replies,
                              Then then) {
  Tick(now, replies);
  Link& link = links_.at(LinkTo(address, 0, now));
  link.connected = true;
  link.on_open.push_back(std::move(then));
  if (link.session == 0) return;
  // Another process may have come at that address since it last answered: a Renew of now tells. An
  // answer to an earlier one would not.
  pending_.erase(link.renewing.token);
  link.renewing = Attempts();
  link.renewing.next = now;
}

uint64_t ReferenceHolder::OwnerAt(const std::string& address) const {
  for (const auto& [id, link] : links_) {
    if (link.address == address && link.session != 0) return link.owner;
  }
  return 0;
}

absl::Status ReferenceHolder::WhyLeaseOver(const Link& link) const {
  return absl::AbortedError(
      absl::StrFormat("%s has not answered for %s: it may have freed what was held there",
                      link.address, absl::FormatDuration(link.lease * (1 - options_.margin))));
}

void ReferenceHolder::Die(LinkId id, const absl::Status& why, absl::Time now, Replies& replies) {
  auto node = links_.extract(id);
  if (node.empty()) return;
  Link& link = node.mapped();
  std::erase_if(pending_, [&](const auto& pending) {
    return pending.second.kind != Kind::kFetch && pending.second.link == id;
  });
  if (link.session != 0) {
    LeaveSessionRequest leave;
    leave.mutable_header()->set_owner(link.owner);
    leave.mutable_header()->set_session(link.session);
    farewells_.push_back({0, link.address, now + options_.attempt, std::move(leave)});
  }
  for (const HeldId held : link.held) {
    held_.at(held).dead = why;
    EndFetchesOf(held, why, replies);
    // Who still holds it is told when it is used.
    if (held_.at(held).holds == 0) held_.erase(held);
  }
  for (const Then& then : link.on_open) then(why, now, replies);
  for (auto& [number, operation] : link.operations) {
    if (operation.ended == nullptr) continue;
    operation.ended(why, operation.was_sent ? Accepted::kUnknown : Accepted::kNo, now, replies);
  }
}

// --- Forks
// -----------------------------------------------------------------------------------------------------------

ReferenceHolder::HeldId ReferenceHolder::AddHeld(LinkId link, const ReferenceId& id,
                                                 const StepScope& scope, uint64_t fork) {
  const HeldId held_id = next_id_++;
  Held& held = held_[held_id];
  held.id = id;
  held.address = links_.at(link).address;
  held.scope = scope;
  held.link = link;
  held.fork = fork;
  links_.at(link).held.insert(held_id);
  return held_id;
}

void ReferenceHolder::AddOperation(Link& link, Operation operation) {
  link.operations.emplace(link.next_number++, std::move(operation));
}

absl::StatusOr<ReferenceHolder::HeldId> ReferenceHolder::Call(const std::string& address,
                                                              OutgoingCall call, absl::Time now,
                                                              CallEnded ended) {
  for (auto& [id, link] : links_) {
    if (link.address != address || link.session == 0 || now >= link.usable_until) continue;
    link.used_at = now;
    const HeldId held = AddHeld(id, {link.owner, link.session, link.next_number},
                                StepOf(call.head.scope()), link.next_number);
    AddOperation(link, Operation{std::move(call), held, std::move(ended), {}});
    return held;
  }
  return absl::FailedPreconditionError(absl::StrCat("not connected to ", address));
}

ReferenceHolder::HeldId ReferenceHolder::Fork(const ReferenceId& id, const std::string& address,
                                              const StepScope& scope, absl::Time now,
                                              Replies& replies, Then then) {
  Tick(now, replies);
  const LinkId link_id = LinkTo(address, id.owner, now);
  Link& link = links_.at(link_id);
  link.used_at = now;
  const HeldId held = AddHeld(link_id, id, scope, link.next_number);
  ForkRequest request;
  ToMessage(id, *request.mutable_name());
  AddOperation(
      link, Operation{std::move(request),
                      held,
                      [then = std::move(then)](const absl::Status& status, Accepted, absl::Time now,
                                               Replies& replies) { then(status, now, replies); },
                      {}});
  return held;
}

std::optional<ReferenceHolder::HeldId> ReferenceHolder::Accept(const ReferenceId& id,
                                                               const StepScope& scope,
                                                               const ReferenceOwner::Given& given,
                                                               ValuePtr ahead, absl::Time now) {
  for (auto& [link_id, link] : links_) {
    if (link.owner != id.owner || link.session == 0 || link.session != given.session) continue;
    ++link.given_received;
    // Without a link there would be no fork with the next call, nor its value.
    link.used_at = now;
    const HeldId held = AddHeld(link_id, id, scope, given.fork);
    Held& fork = held_.at(held);
    fork.confirmed = true;
    fork.ahead = std::move(ahead);
    return held;
  }
  return std::nullopt;
}

void ReferenceHolder::Release(HeldId held, absl::Time, Replies&) {
  if (--held_.at(held).holds == 0) LetGo(held, /*at_once=*/false);
}

void ReferenceHolder::Abandon(HeldId held, absl::Time, Replies&) {
  if (--held_.at(held).holds == 0) LetGo(held, /*at_once=*/true);
}

void ReferenceHolder::LetGo(HeldId id, bool at_once) {
  const auto found = held_.find(id);
  const auto link = links_.find(found->second.link);
  if (found->second.dead.ok() && link != links_.end()) {
    if (found->second.confirmed) {
      link->second.to_drop.push_back(found->second.fork);
    } else if (at_once) {
      Supersede(link->second, found->second.fork);
    } else {
      return;  // until its call is answered
    }
    link->second.held.erase(id);
  }
  held_.erase(found);
}

void ReferenceHolder::Supersede(Link& link, uint64_t number) {
  Operation& operation = link.operations.at(number);
  operation.superseded = true;
  operation.held = 0;
  pending_.erase(operation.attempts.token);
  operation.attempts.token = 0;
  link.to_drop.push_back(number);
}

absl::Status ReferenceHolder::StatusOf(HeldId held, absl::Time now) const {
  const Held& fork = held_.at(held);
  if (!fork.dead.ok()) return fork.dead;
  const auto link = links_.find(fork.link);
  if (link != links_.end() && now >= link->second.usable_until) return WhyLeaseOver(link->second);
  return absl::OkStatus();
}

ReferenceOwner::Given ReferenceHolder::PlaceOf(HeldId held) const {
  const Held& fork = held_.at(held);
  const auto link = links_.find(fork.link);
  return {link == links_.end() ? 0 : link->second.session, fork.fork};
}

std::vector<ReferenceOwner::Given> ReferenceHolder::UsableForks(const ReferenceId& id,
                                                                absl::Time now) const {
  std::vector<ReferenceOwner::Given> forks;
  for (const auto& [held, fork] : held_) {
    if (fork.id == id && fork.confirmed && StatusOf(held, now).ok()) forks.push_back(PlaceOf(held));
  }
  return forks;
}

void ReferenceHolder::EndStep(const StepScope& scope, absl::Time, Replies& replies) {
  for (auto next = held_.begin(); next != held_.end();) {
    const HeldId id = next->first;
    Held& held = next->second;
    ++next;  // what follows may erase this one
    if (held.scope.step == 0 || held.scope > scope || !held.dead.ok()) continue;
    held.dead = StepEnded(held.scope);
    Link& link = links_.at(held.link);
    link.held.erase(id);
    if (held.confirmed) {
      link.to_drop.push_back(held.fork);
    } else {
      Supersede(link, held.fork);
    }
    EndFetchesOf(id, absl::Status(held.dead), replies);
    if (held.holds == 0) held_.erase(id);
  }
}

void ReferenceHolder::LeaveAll(absl::Time now, Replies& replies) {
  while (!links_.empty()) {
    Die(links_.begin()->first, absl::AbortedError("this process has left"), now, replies);
  }
}

// --- Fetches
// ---------------------------------------------------------------------------------------------------------

void ReferenceHolder::Fetch(HeldId held, CallTime time, Replies& replies, Done<FetchedValue> done) {
  Tick(time.now, replies);
  Held& fork = held_.at(held);
  if (!fork.dead.ok()) return replies.Add<FetchedValue>(std::move(done), fork.dead);
  if (fork.ahead != nullptr) {
    return replies.Add<FetchedValue>(std::move(done), FetchedValue{fork.ahead});
  }
  // No Drop may overtake it.
  ++fork.holds;
  ++fork.fetches;
  OpenFetch& fetch = fetches_[next_id_++];
  fetch.held = held;
  fetch.deadline = time.deadline;
  fetch.done = std::move(done);
}

void ReferenceHolder::EndFetch(uint64_t id, absl::StatusOr<FetchedValue> value, Replies& replies) {
  auto node = fetches_.extract(id);
  if (node.empty()) return;
  OpenFetch& fetch = node.mapped();
  pending_.erase(fetch.attempts.token);
  replies.Add<FetchedValue>(std::move(fetch.done), std::move(value));
  const auto held = held_.find(fetch.held);
  --held->second.fetches;
  if (--held->second.holds == 0) LetGo(fetch.held, /*at_once=*/false);
}

void ReferenceHolder::EndFetchesOf(HeldId held, const absl::Status& why, Replies& replies) {
  if (held_.at(held).fetches == 0) return;
  std::vector<uint64_t> ended;
  for (const auto& [id, fetch] : fetches_) {
    if (fetch.held == held) ended.push_back(id);
  }
  // Held once more: the caller still looks at it.
  ++held_.at(held).holds;
  for (const uint64_t id : ended) EndFetch(id, why, replies);
  --held_.at(held).holds;
}

}  // namespace parley
