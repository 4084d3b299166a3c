// What a holder sends, what it makes of the answers, and what time ends.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/reference/reference_errors.h"
#include "client/reference/reference_holder.h"
#include "common/seed.h"

namespace parley {
namespace {

// Cancelled, Unknown: gRPC's own words for a connection or a server that went away during the call,
// which are no word of the owner's.
bool WorthATry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status) || absl::IsUnknown(status);
}

// Answers to one call, which leave the session as it is.
bool IsOfTheCall(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
}

absl::Status Annotated(const absl::Status& status, const std::string& address) {
  return absl::Status(status.code(), absl::StrCat(address, ": ", status.message()));
}

// nullptr: the transport has brought another kind of answer.
template <class Reply>
const Reply* As(const absl::StatusOr<FromOwner>& reply) {
  return reply.ok() ? std::get_if<Reply>(&*reply) : nullptr;
}

}  // namespace

void ReferenceHolder::Tick(absl::Time now, Replies& replies) {
  std::vector<std::pair<LinkId, absl::Status>> dead;
  for (const auto& [id, link] : links_) {
    if (link.session == 0) {
      if (now < link.give_up) continue;
      dead.emplace_back(
          id, absl::UnavailableError(absl::StrFormat("no connection to %s within %s", link.address,
                                                     absl::FormatDuration(options_.patience))));
    } else if (now >= link.usable_until) {
      dead.emplace_back(id, WhyLeaseOver(link));
    } else if (!link.connected && link.held.empty() && link.operations.empty() &&
               link.to_drop.empty() && now >= link.used_at + link.lease) {
      dead.emplace_back(id, absl::AbortedError("not used"));
    }
  }
  for (const auto& [id, why] : dead) Die(id, why, now, replies);
  std::vector<uint64_t> late;
  for (const auto& [id, fetch] : fetches_) {
    if (now >= fetch.deadline) late.push_back(id);
  }
  for (const uint64_t id : late) {
    const OpenFetch& fetch = fetches_.at(id);
    const Held& held = held_.at(fetch.held);
    EndFetch(id,
             absl::DeadlineExceededError(absl::StrCat(
                 "the value of reference ", ToString(held.id), " at ", held.address,
                 " has not come", fetch.failed.ok() ? "" : ": ", fetch.failed.message())),
             replies);
  }
}

uint64_t ReferenceHolder::Sent(Attempts& attempts, Pending pending) {
  attempts.token = next_id_++;
  pending_.emplace(attempts.token, pending);
  return attempts.token;
}

void ReferenceHolder::Failed(Attempts& attempts, absl::Time now) const {
  attempts.token = 0;
  attempts.wait = attempts.wait == absl::ZeroDuration()
                      ? options_.retry
                      : std::min(2 * attempts.wait, options_.attempt);
  attempts.next = now + attempts.wait;
}

std::vector<ToOwner> ReferenceHolder::TakeOutgoing(absl::Time now) {
  std::vector<ToOwner> out = std::exchange(farewells_, {});
  for (auto& [id, link] : links_) {
    if (link.session == 0) {
      SendOpen(id, link, now, out);
    } else if (now < link.usable_until) {
      SendOperations(id, link, now, out);
      SendRenew(id, link, now, out);
    }
  }
  SendFetches(now, out);
  return out;
}

void ReferenceHolder::SendOpen(LinkId id, Link& link, absl::Time now, std::vector<ToOwner>& out) {
  if (link.opening.token != 0 || now < link.opening.next) return;
  OpenSessionRequest request;
  request.set_job(options_.job);
  request.set_owner(link.owner);
  request.set_holder(options_.incarnation);
  request.set_holder_address(options_.address);
  link.open_sent = now;
  const uint64_t token = Sent(link.opening, {Kind::kOpen, id});
  out.push_back({token, link.address, now + options_.attempt, std::move(request)});
}

void ReferenceHolder::SendRenew(LinkId id, Link& link, absl::Time now, std::vector<ToOwner>& out) {
  if (link.renewing.token != 0 || now < link.renewing.next) return;
  RenewSessionRequest request;
  request.mutable_header()->set_owner(link.owner);
  request.mutable_header()->set_session(link.session);
  if (link.operations.empty() && link.to_drop.empty()) {
    request.set_next_number(link.next_number);
    request.set_given_received(link.given_received);
    uint64_t digest = 0;
    uint64_t forks = 0;
    for (const HeldId held : link.held) {
      const Held& fork = held_.at(held);
      if (fork.scope.step != 0) continue;
      ++forks;
      digest ^= DeriveSeed(fork.fork, "fork");
      if (link.differs) request.add_held(fork.fork);
    }
    request.set_forks(forks);
    request.set_digest(digest);
    request.set_tells_all(link.differs);
  }
  link.renew_sent = now;
  const uint64_t token = Sent(link.renewing, {Kind::kRenew, id});
  // So that one that is lost in silence leaves time for two others.
  out.push_back({token, link.address, now + link.lease / 6, std::move(request)});
}

// A value may be large and the network slow, and an attempt that is given up has sent its bytes in
// vain: the next one begins with the first of them. Transports tell sooner of a connection that is
// dead, and what comes twice is done once.
absl::Duration ReferenceHolder::ValueAttempt(const Link& link) const {
  return std::max(options_.attempt, link.lease);
}

void ReferenceHolder::SendOperations(LinkId id, Link& link, absl::Time now,
                                     std::vector<ToOwner>& out) {
  if (!link.to_drop.empty()) link.drop_at = std::min(link.drop_at, now + options_.gather);
  if (now >= link.drop_at) {
    DropRequest drop;
    drop.mutable_forks()->Add(link.to_drop.begin(), link.to_drop.end());
    link.to_drop.clear();
    link.drop_at = absl::InfiniteFuture();
    AddOperation(link, Operation{std::move(drop), 0, nullptr, {}});
  }
  for (auto& [number, operation] : link.operations) {
    if (operation.superseded || operation.attempts.token != 0 || now < operation.attempts.next) {
      continue;
    }
    operation.was_sent = true;
    const uint64_t token = Sent(operation.attempts, {Kind::kOperation, id, number});
    const auto send = [&, number = number](auto& head, const auto& request,
                                           absl::Duration attempt) {
      head.mutable_header()->set_owner(link.owner);
      head.mutable_header()->set_session(link.session);
      head.mutable_number()->set_number(number);
      head.mutable_number()->set_first_open(link.operations.begin()->first);
      out.push_back({token, link.address, now + attempt, request});
    };
    if (auto* call = std::get_if<OutgoingCall>(&operation.request)) {
      send(call->head, *call, ValueAttempt(link));
    } else if (auto* fork = std::get_if<ForkRequest>(&operation.request)) {
      send(*fork, *fork, options_.attempt);
    } else {
      auto& drop = std::get<DropRequest>(operation.request);
      send(drop, drop, options_.attempt);
    }
  }
}

void ReferenceHolder::SendFetches(absl::Time now, std::vector<ToOwner>& out) {
  for (auto& [id, fetch] : fetches_) {
    if (fetch.attempts.token != 0 || now < fetch.attempts.next) continue;
    const Held& held = held_.at(fetch.held);
    const auto link = links_.find(held.link);
    if (link == links_.end() || link->second.session == 0) continue;
    FetchRequest request;
    request.mutable_header()->set_owner(link->second.owner);
    request.mutable_header()->set_session(link->second.session);
    request.set_fork(held.fork);
    const uint64_t token = Sent(fetch.attempts, {Kind::kFetch, held.link, id});
    out.push_back({token, held.address, std::min(fetch.deadline, now + ValueAttempt(link->second)),
                   std::move(request)});
  }
}

// --- Answers
// ---------------------------------------------------------------------------------------------------------

void ReferenceHolder::OnReply(uint64_t token, absl::StatusOr<FromOwner> reply, absl::Time now,
                              Replies& replies) {
  Tick(now, replies);
  const auto found = pending_.find(token);
  if (found == pending_.end()) return;
  const Pending pending = found->second;
  pending_.erase(found);
  switch (pending.kind) {
    case Kind::kOpen:
      return OnOpen(pending.link, reply, now, replies);
    case Kind::kRenew:
      return OnRenew(pending.link, reply, now, replies);
    case Kind::kOperation:
      return OnOperation(pending.link, pending.number, reply, now, replies);
    case Kind::kFetch:
      return OnFetch(pending.number, std::move(reply), now, replies);
  }
}

void ReferenceHolder::OnOpen(LinkId id, const absl::StatusOr<FromOwner>& reply, absl::Time now,
                             Replies& replies) {
  Link& link = links_.at(id);
  if (!reply.ok()) {
    if (WorthATry(reply.status())) return Failed(link.opening, now);
    return Die(id, Annotated(reply.status(), link.address), now, replies);
  }
  const auto* const opened = As<OpenSessionReply>(reply);
  if (opened == nullptr || opened->session() == 0 || opened->owner() == 0 ||
      (link.owner != 0 && link.owner != opened->owner()) ||
      !(opened->lease_seconds() > 0 && opened->lease_seconds() < 1e6)) {
    return Die(id, absl::InternalError(absl::StrCat(link.address, " answered Open with nonsense")),
               now, replies);
  }
  link.opening.token = 0;
  link.owner = opened->owner();
  link.session = opened->session();
  link.lease = absl::Seconds(opened->lease_seconds());
  link.usable_until = link.open_sent + link.lease * (1 - options_.margin);
  // At once: so that the owner knows which of the sessions that it granted is in use, and may give
  // forks there.
  link.renewing.next = now;
  link.used_at = now;
  const std::string address = link.address;
  const uint64_t owner = link.owner;
  const std::vector<Then> on_open = std::exchange(link.on_open, {});
  // There is one process at an address: the others' have been.
  std::vector<LinkId> former;
  for (const auto& [other_id, other] : links_) {
    if (other.address == address && other.session != 0 && other.owner != owner) {
      former.push_back(other_id);
    }
  }
  for (const LinkId other : former) {
    Die(other, absl::AbortedError(absl::StrCat(address, ": the owner was restarted")), now,
        replies);
  }
  for (const Then& then : on_open) then(absl::OkStatus(), now, replies);
}

void ReferenceHolder::OnRenew(LinkId id, const absl::StatusOr<FromOwner>& reply, absl::Time now,
                              Replies& replies) {
  Link& link = links_.at(id);
  if (!reply.ok()) {
    if (WorthATry(reply.status())) return Failed(link.renewing, now);
    return Die(id, Annotated(reply.status(), link.address), now, replies);
  }
  const auto* const renewed = As<RenewSessionReply>(reply);
  if (renewed == nullptr) {
    return Die(id, absl::InternalError("another kind of answer"), now, replies);
  }
  link.usable_until = link.renew_sent + link.lease * (1 - options_.margin);
  link.renewing = Attempts();
  link.renewing.next = link.renew_sent + link.lease / 3;
  // At once, while the two still speak of the same moment.
  if (renewed->differs()) link.renewing.next = now;
  link.differs = renewed->differs();
  for (const uint64_t fork : renewed->not_held()) {
    for (const HeldId held : std::set<HeldId>(link.held)) {
      Held& lost = held_.at(held);
      if (lost.fork != fork) continue;
      ++mended_;
      link.held.erase(held);
      lost.dead = absl::AbortedError(absl::StrCat(link.address, " knows of no such reference"));
      EndFetchesOf(held, lost.dead, replies);
      if (lost.holds == 0) held_.erase(held);
    }
  }
  for (const Then& then : std::exchange(link.on_open, {})) then(absl::OkStatus(), now, replies);
}

void ReferenceHolder::EndOperation(LinkId id, uint64_t number, const absl::Status& status,
                                   Accepted accepted, absl::Time now, Replies& replies) {
  const auto link = links_.find(id);
  if (link == links_.end()) return;
  auto node = link->second.operations.extract(number);
  if (node.empty() || node.mapped().ended == nullptr) return;
  node.mapped().ended(status, accepted, now, replies);
}

void ReferenceHolder::OnOperation(LinkId id, uint64_t number,
                                  const absl::StatusOr<FromOwner>& reply, absl::Time now,
                                  Replies& replies) {
  Link& link = links_.at(id);
  Operation& operation = link.operations.at(number);
  if (!reply.ok() && WorthATry(reply.status())) return Failed(operation.attempts, now);
  if (!reply.ok() && !IsOfTheCall(reply.status())) {
    return Die(id, Annotated(reply.status(), link.address), now, replies);
  }
  if (const auto* const drop = std::get_if<DropRequest>(&operation.request)) {
    const auto* const answer = As<DropReply>(reply);
    if (answer == nullptr) {
      return Die(id, absl::InternalError("a Drop was refused"), now, replies);
    }
    const std::set<uint64_t> no_effect(answer->no_effect().begin(), answer->no_effect().end());
    const std::vector<uint64_t> forks(drop->forks().begin(), drop->forks().end());
    link.operations.erase(number);
    for (const uint64_t fork : forks) {
      const auto superseded = links_.at(id).operations.find(fork);
      if (superseded == links_.at(id).operations.end() || !superseded->second.superseded) continue;
      EndOperation(id, fork, absl::CancelledError("given up"),
                   no_effect.contains(fork) ? Accepted::kNo : Accepted::kYes, now, replies);
    }
    return;
  }
  const HeldId held_id = operation.held;
  Held& held = held_.at(held_id);
  if (reply.ok()) {
    held.confirmed = true;
  } else {
    held.dead = Annotated(reply.status(), link.address);
    link.held.erase(held_id);
    EndFetchesOf(held_id, held.dead, replies);
  }
  const absl::Status status = held.dead;
  if (held.holds == 0) LetGo(held_id, /*at_once=*/false);
  EndOperation(id, number, status, reply.ok() ? Accepted::kYes : Accepted::kNo, now, replies);
}

void ReferenceHolder::OnFetch(uint64_t id, absl::StatusOr<FromOwner> reply, absl::Time now,
                              Replies& replies) {
  const auto found = fetches_.find(id);
  if (found == fetches_.end()) return;
  if (!reply.ok()) {
    if (WorthATry(reply.status())) {
      found->second.failed = reply.status();
      return Failed(found->second.attempts, now);
    }
    const Held& held = held_.at(found->second.held);
    // The owner forgets the forks of a step with it. Only that takes one away that is held.
    const bool step_ended = absl::IsNotFound(reply.status()) && held.scope.step != 0;
    const absl::Status why =
        Annotated(step_ended ? StepEnded(held.scope) : reply.status(), held.address);
    if (IsOfTheCall(why)) return EndFetch(id, why, replies);
    return Die(held.link, why, now, replies);
  }
  auto* const fetched = std::get_if<FetchedValue>(&*reply);
  if (fetched == nullptr) {
    return EndFetch(id, absl::InternalError("another kind of answer"), replies);
  }
  EndFetch(id, std::move(*fetched), replies);
}

size_t ReferenceHolder::open_calls() const {
  size_t count = fetches_.size();
  for (const auto& [id, link] : links_) count += link.operations.size();
  return count;
}

}  // namespace parley
