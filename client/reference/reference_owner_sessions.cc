// Sessions: granted, renewed, compared, and over. And all that time ends.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/reference/reference_owner.h"
#include "common/seed.h"

namespace parley {
namespace {

constexpr char kSessionOver[] =
    "its session is over: it was not renewed in time, or has been given up";

uint64_t DigestOf(uint64_t fork) { return DeriveSeed(fork, "fork"); }

}  // namespace

void ReferenceOwner::Tick(absl::Time now, Replies& replies) {
  Expire(now, replies);
  ExpireParked(now, replies);
}

void ReferenceOwner::Expire(absl::Time now, Replies& replies) {
  std::vector<uint64_t> over;
  for (const auto& [id, session] : sessions_) {
    if (now >= session.ends) over.push_back(id);
  }
  for (const uint64_t id : over) EndSession(id, Why::kLeaseOver, now, replies);
}

void ReferenceOwner::ExpireParked(absl::Time now, Replies& replies) {
  const absl::Status late = absl::DeadlineExceededError("still waiting");
  for (auto& [id, session] : sessions_) {
    for (auto& [number, operation] : session.operations) {
      std::erase_if(operation.parked, [&](Operation::Parked& parked) {
        if (parked.deadline > now) return false;
        replies.Add([answer = std::move(parked.answer), late] { answer(late, {}); });
        return true;
      });
    }
  }
  for (auto& [id, entry] : entries_) {
    std::erase_if(entry.waiting, [&](WaitingFetch& waiting) {
      if (waiting.deadline > now) return false;
      replies.Add<FetchedValue>(std::move(waiting.done), late);
      return true;
    });
  }
  std::vector<Then> expired;
  for (auto& [call, awaiting] : awaiting_) {
    std::erase_if(awaiting, [&](Awaiting& one) {
      if (one.deadline > now) return false;
      expired.push_back(std::move(one.then));
      return true;
    });
  }
  std::erase_if(awaiting_, [](const auto& call) { return call.second.empty(); });
  for (const Then& then : expired) then(late, now, replies);
}

absl::StatusOr<ReferenceOwner::Session*> ReferenceOwner::Find(const SessionHeader& header) {
  if (header.owner() != options_.incarnation) {
    return absl::AbortedError("the owner was restarted: what it had is gone");
  }
  const auto session = sessions_.find(header.session());
  if (session == sessions_.end()) return absl::AbortedError(kSessionOver);
  session->second.used = true;
  return &session->second;
}

absl::StatusOr<OpenSessionReply> ReferenceOwner::Open(const OpenSessionRequest& request,
                                                      absl::Time now, Replies& replies) {
  Expire(now, replies);
  if (request.job() != options_.job) {
    return absl::NotFoundError(
        absl::StrCat("this process is of job '", options_.job, "', not '", request.job(), "'"));
  }
  if (request.owner() != 0 && request.owner() != options_.incarnation) {
    return absl::AbortedError("the owner was restarted: what it had is gone");
  }
  if (request.holder() == 0) return absl::InvalidArgumentError("holder is 0");
  const uint64_t id = options_.draw_session();
  Session& session = sessions_[id];
  session.holder = request.holder();
  session.holder_address = request.holder_address();
  session.ends = now + options_.lease;
  OpenSessionReply reply;
  reply.set_owner(options_.incarnation);
  reply.set_session(id);
  reply.set_lease_seconds(absl::ToDoubleSeconds(options_.lease));
  return reply;
}

absl::StatusOr<RenewSessionReply> ReferenceOwner::Renew(const RenewSessionRequest& request,
                                                        absl::Time now, Replies& replies) {
  Expire(now, replies);
  const absl::StatusOr<Session*> session = Find(request.header());
  if (!session.ok()) return session.status();
  (*session)->ends = now + options_.lease;
  RenewSessionReply reply;
  Reconcile(request.header().session(), request, replies, reply);
  return reply;
}

void ReferenceOwner::Reconcile(uint64_t session_id, const RenewSessionRequest& request,
                               Replies& replies, RenewSessionReply& reply) {
  Session& session = sessions_.at(session_id);
  // Only where the two sides speak of the same moment.
  if (request.next_number() == 0 || request.next_number() != session.highest + 1 ||
      request.given_received() != session.given) {
    return;
  }
  std::set<uint64_t> unscoped;
  uint64_t digest = 0;
  for (const auto& [fork, id] : session.forks) {
    const auto entry = entries_.find(id);
    if (entry == entries_.end() || entry->second.scope.step != 0) continue;
    unscoped.insert(fork);
    digest ^= DigestOf(fork);
  }
  if (unscoped.size() == request.forks() && digest == request.digest()) return;
  if (!request.tells_all()) {
    reply.set_differs(true);
    return;
  }
  for (const uint64_t fork : request.held()) {
    if (unscoped.erase(fork) != 0) continue;
    reply.add_not_held(fork);
    ++mended_;
  }
  for (const uint64_t fork : unscoped) {
    RemoveFork(session_id, fork, Why::kLeft, replies);
    ++mended_;
  }
}

void ReferenceOwner::Leave(const LeaveSessionRequest& request, absl::Time now, Replies& replies) {
  Expire(now, replies);
  if (request.header().owner() != options_.incarnation) return;
  EndSession(request.header().session(), Why::kLeft, now, replies);
}

void ReferenceOwner::EndSession(uint64_t session_id, Why why, absl::Time now, Replies& replies) {
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end()) return;
  // First out of sight: what is woken below must not find it.
  Session session = std::move(found->second);
  sessions_.erase(found);
  if (observer_.session_over) observer_.session_over(session_id, session.holder_address, why);
  const absl::Status over = absl::AbortedError(kSessionOver);
  for (auto& [number, operation] : session.operations) {
    for (Operation::Parked& parked : operation.parked) {
      replies.Add([answer = std::move(parked.answer), over] { answer(over, {}); });
    }
  }
  for (const auto& [fork, id] : session.forks) {
    const auto entry = entries_.find(id);
    if (entry == entries_.end()) continue;
    entry->second.forks.erase({session_id, fork});
    FreeIfUnused(id, why, replies);
  }
  // Calls that have not made their value yet.
  const ReferenceId first{options_.incarnation, session_id, 0};
  for (auto entry = entries_.lower_bound(first);
       entry != entries_.end() && entry->first.session == session_id; ++entry) {
    if (!entry->second.value.has_value()) cancelled_.push_back(entry->first);
  }
  std::vector<Then> woken;
  auto awaiting = awaiting_.lower_bound({session_id, 0});
  while (awaiting != awaiting_.end() && awaiting->first.first == session_id) {
    for (Awaiting& one : awaiting->second) woken.push_back(std::move(one.then));
    awaiting = awaiting_.erase(awaiting);
  }
  for (const Then& then : woken) {
    then(absl::NotFoundError("who was to make the value has gone"), now, replies);
  }
}

}  // namespace parley
