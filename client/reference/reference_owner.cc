// Numbered calls, and the forks that they make and drop.
#include "client/reference/reference_owner.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "client/reference/reference_errors.h"

namespace parley {
namespace {

absl::Status AnsweredBefore() {
  return absl::AlreadyExistsError("this call has been answered before");
}

}  // namespace

// --- Numbered calls
// --------------------------------------------------------------------------------------------------

bool ReferenceOwner::Seen(const Session& session, uint64_t number) {
  return number < session.first_open || session.operations.contains(number);
}

ReferenceOwner::Operation* ReferenceOwner::Begin(Session& session, const CallNumber& number,
                                                 CallTime time, Replies& replies,
                                                 Operation::Answer answer) {
  const auto refuse = [&](absl::Status status) {
    replies.Add([answer = std::move(answer), status = std::move(status)] { answer(status, {}); });
    return nullptr;
  };
  if (number.number() == 0 || number.number() >= kGivenFork ||
      number.first_open() > number.number()) {
    return refuse(absl::InvalidArgumentError("no such number of a call"));
  }
  if (number.first_open() > session.first_open) {
    session.first_open = number.first_open();
    const auto end = session.operations.lower_bound(session.first_open);
    for (auto old = session.operations.begin(); old != end; ++old) {
      // None is parked where the holder keeps to the protocol.
      for (Operation::Parked& parked : old->second.parked) {
        replies.Add([answer = std::move(parked.answer)] { answer(AnsweredBefore(), {}); });
      }
    }
    session.operations.erase(session.operations.begin(), end);
  }
  if (number.number() < session.first_open) {
    // A copy that was long on its way; nobody waits for the answer.
    return refuse(AnsweredBefore());
  }
  session.highest = std::max(session.highest, number.number());
  const auto [found, is_new] = session.operations.try_emplace(number.number());
  Operation& operation = found->second;
  if (operation.status.has_value()) {
    replies.Add([answer = std::move(answer), status = *operation.status,
                 no_effect = operation.no_effect] { answer(status, no_effect); });
    return nullptr;
  }
  operation.parked.push_back({time.deadline, std::move(answer)});
  return is_new ? &operation : nullptr;
}

void ReferenceOwner::Answer(uint64_t session_id, uint64_t number, const absl::Status& status,
                            absl::Time now, Replies& replies) {
  const auto session = sessions_.find(session_id);
  if (session == sessions_.end()) return;
  const auto found = session->second.operations.find(number);
  if (found == session->second.operations.end() || found->second.status.has_value()) return;
  Operation& operation = found->second;
  operation.status = status;
  for (Operation::Parked& parked : operation.parked) {
    replies.Add([answer = std::move(parked.answer), status, no_effect = operation.no_effect] {
      answer(status, no_effect);
    });
  }
  operation.parked.clear();
  Wake({session_id, number}, status, now, replies);
}

void ReferenceOwner::Wake(const CallKey& call, const absl::Status& status, absl::Time now,
                          Replies& replies) {
  const auto found = awaiting_.find(call);
  if (found == awaiting_.end()) return;
  const std::vector<Awaiting> woken = std::move(found->second);
  awaiting_.erase(found);
  for (const Awaiting& one : woken) one.then(status, now, replies);
}

void ReferenceOwner::WhenMade(const ReferenceId& id, absl::Time now, Replies& replies, Then then) {
  if (entries_.contains(id)) return then(absl::OkStatus(), now, replies);
  const auto session = sessions_.find(id.session);
  if (id.owner != options_.incarnation || session == sessions_.end() ||
      Seen(session->second, id.number)) {
    return then(ValueGone(id), now, replies);
  }
  // Until the call comes or its session ends.
  awaiting_[{id.session, id.number}].push_back({absl::InfiniteFuture(), std::move(then)});
}

std::optional<ReferenceId> ReferenceOwner::BeginCall(const RemoteCallRequest& request,
                                                     CallTime time, Replies& replies,
                                                     Done<RemoteCallReply> done) {
  Expire(time.now, replies);
  const absl::StatusOr<Session*> session = Find(request.header());
  if (!session.ok()) {
    replies.Add<RemoteCallReply>(std::move(done), session.status());
    return std::nullopt;
  }
  Operation* const operation =
      Begin(**session, request.number(), time, replies,
            [done = std::move(done)](const absl::Status& status, const std::vector<uint64_t>&) {
              status.ok() ? done(RemoteCallReply()) : done(status);
            });
  if (operation == nullptr) return std::nullopt;
  const uint64_t session_id = request.header().session();
  const uint64_t number = request.number().number();
  const StepScope scope = StepOf(request.scope());
  if (scope.step != 0 && scope <= ended_) {
    Answer(session_id, number, StepEnded(scope), time.now, replies);
    return std::nullopt;
  }
  operation->is_call = true;
  const ReferenceId id{options_.incarnation, session_id, number};
  Entry& entry = entries_[id];
  entry.scope = scope;
  entry.pins = 1;
  AddFork(session_id, number, id, entry);
  Wake({session_id, number}, absl::OkStatus(), time.now, replies);
  return id;
}

void ReferenceOwner::ConfirmCall(const ReferenceId& call, absl::Time now, Replies& replies) {
  Answer(call.session, call.number, absl::OkStatus(), now, replies);
}

void ReferenceOwner::Finish(const ReferenceId& call, absl::StatusOr<ValuePtr> value, absl::Time now,
                            Replies& replies) {
  const auto found = entries_.find(call);
  if (found == entries_.end() || found->second.value.has_value()) return;
  Entry& entry = found->second;
  entry.value = std::move(value);
  for (WaitingFetch& waiting : entry.waiting) {
    replies.Add<FetchedValue>(std::move(waiting.done), FetchedValue{*entry.value});
  }
  entry.waiting.clear();
  Unpin(call, now, replies);
}

void ReferenceOwner::Fork(const ForkRequest& request, CallTime time, Replies& replies,
                          Done<ForkReply> done) {
  Expire(time.now, replies);
  const absl::StatusOr<Session*> session = Find(request.header());
  if (!session.ok()) return replies.Add<ForkReply>(std::move(done), session.status());
  Operation* const operation =
      Begin(**session, request.number(), time, replies,
            [done = std::move(done)](const absl::Status& status, const std::vector<uint64_t>&) {
              status.ok() ? done(ForkReply()) : done(status);
            });
  if (operation == nullptr) return;
  const uint64_t session_id = request.header().session();
  const uint64_t number = request.number().number();
  const ReferenceId id = FromMessage(request.name());
  WhenMade(
      id, time.now, replies,
      [this, session_id, number, id](const absl::Status& made, absl::Time now, Replies& replies) {
        const auto session = sessions_.find(session_id);
        if (session == sessions_.end()) return;
        // It may have been dropped meanwhile.
        const auto operation = session->second.operations.find(number);
        if (operation == session->second.operations.end() || operation->second.status.has_value()) {
          return;
        }
        const auto entry = entries_.find(id);
        if (made.ok() && entry != entries_.end()) {
          AddFork(session_id, number, id, entry->second);
        }
        Answer(session_id, number, made.ok() && entry == entries_.end() ? ValueGone(id) : made, now,
               replies);
      });
}

void ReferenceOwner::Drop(const DropRequest& request, CallTime time, Replies& replies,
                          Done<DropReply> done) {
  Expire(time.now, replies);
  const absl::StatusOr<Session*> session = Find(request.header());
  if (!session.ok()) return replies.Add<DropReply>(std::move(done), session.status());
  Operation* const operation = Begin(
      **session, request.number(), time, replies,
      [done = std::move(done)](const absl::Status& status, const std::vector<uint64_t>& no_effect) {
        if (!status.ok()) return done(status);
        DropReply reply;
        reply.mutable_no_effect()->Add(no_effect.begin(), no_effect.end());
        done(std::move(reply));
      });
  if (operation == nullptr) return;
  const uint64_t session_id = request.header().session();
  const uint64_t number = request.number().number();
  for (const uint64_t fork : request.forks()) {
    if (fork == number) continue;  // only a peer that breaks the protocol names its own number
    if (DropFork(session_id, fork, time.now, replies)) operation->no_effect.push_back(fork);
  }
  Answer(session_id, number, absl::OkStatus(), time.now, replies);
}

// --- Forks
// -----------------------------------------------------------------------------------------------------------

void ReferenceOwner::AddFork(uint64_t session_id, uint64_t fork, const ReferenceId& id,
                             Entry& entry) {
  sessions_.at(session_id).forks.emplace(fork, id);
  entry.forks.insert({session_id, fork});
}

bool ReferenceOwner::DropFork(uint64_t session_id, uint64_t fork, absl::Time now,
                              Replies& replies) {
  Session& session = sessions_.at(session_id);
  const absl::Status dropped = absl::FailedPreconditionError("it was dropped before it came");
  bool no_effect = false;
  if (fork < kGivenFork && fork >= session.first_open) {
    const auto [found, is_new] = session.operations.try_emplace(fork);
    if (is_new) {
      found->second.status = dropped;
      session.highest = std::max(session.highest, fork);
      Wake({session_id, fork}, dropped, now, replies);
      return true;
    }
    if (!found->second.status.has_value()) {
      if (found->second.is_call) cancelled_.push_back({options_.incarnation, session_id, fork});
      Answer(session_id, fork, dropped, now, replies);
    }
    no_effect = !found->second.status->ok() && !found->second.is_call;
  }
  RemoveFork(session_id, fork, Why::kUnused, replies);
  return no_effect;
}

void ReferenceOwner::RemoveFork(uint64_t session_id, uint64_t fork, Why why, Replies& replies) {
  Session& session = sessions_.at(session_id);
  const auto held = session.forks.find(fork);
  if (held == session.forks.end()) return;
  const ReferenceId id = held->second;
  session.forks.erase(held);
  entries_.at(id).forks.erase({session_id, fork});
  FreeIfUnused(id, why, replies);
}

void ReferenceOwner::FreeIfUnused(const ReferenceId& id, Why why, Replies& replies) {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.pins != 0 || !found->second.forks.empty()) return;
  for (WaitingFetch& waiting : found->second.waiting) {
    replies.Add<FetchedValue>(std::move(waiting.done), ValueGone(id));
  }
  // What the value's owner does when the last one lets go of it may take long: not under the lock.
  if (found->second.value.has_value() && found->second.value->ok()) {
    replies.Add([value = **std::move(found->second.value)]() mutable { value.reset(); });
  }
  entries_.erase(found);
  if (observer_.freed) observer_.freed(id, why);
}

std::optional<ReferenceOwner::Given> ReferenceOwner::Give(const ReferenceId& id, uint64_t holder) {
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return std::nullopt;
  // The one that ends last is the one that it renews.
  auto newest = sessions_.end();
  for (auto session = sessions_.begin(); session != sessions_.end(); ++session) {
    if (session->second.holder != holder || !session->second.used) continue;
    if (newest == sessions_.end() || session->second.ends > newest->second.ends) newest = session;
  }
  if (newest == sessions_.end()) return std::nullopt;
  Session& session = newest->second;
  const Given given{newest->first, session.next_given++};
  ++session.given;
  AddFork(given.session, given.fork, id, entry->second);
  return given;
}

void ReferenceOwner::TakeBack(const Given& given, absl::Time now, Replies& replies) {
  Expire(now, replies);
  const auto session = sessions_.find(given.session);
  if (session == sessions_.end()) return;
  --session->second.given;
  RemoveFork(given.session, given.fork, Why::kUnused, replies);
}

void ReferenceOwner::Revoke(const Given& given, absl::Time now, Replies& replies) {
  EndSession(given.session, Why::kRevoked, now, replies);
}

void ReferenceOwner::Fetch(const FetchRequest& request, CallTime time, Replies& replies,
                           Done<FetchedValue> done) {
  Expire(time.now, replies);
  const absl::StatusOr<Session*> session = Find(request.header());
  if (!session.ok()) return replies.Add<FetchedValue>(std::move(done), session.status());
  const uint64_t session_id = request.header().session();
  const uint64_t fork = request.fork();
  const auto fetch = [this, session_id, fork, deadline = time.deadline, done = std::move(done)](
                         const absl::Status& made, absl::Time now, Replies& replies) {
    if (!made.ok()) return replies.Add<FetchedValue>(done, made);
    if (!Holds(session_id, fork)) {
      return replies.Add<FetchedValue>(done, absl::NotFoundError("this fork is not held"));
    }
    Await(sessions_.at(session_id).forks.at(fork), {now, deadline}, replies, done);
  };
  // The call that makes the fork may still be on its way, or wait for the value's own call.
  if (fork < kGivenFork && !(*session)->forks.contains(fork) && fork >= (*session)->first_open) {
    const auto operation = (*session)->operations.find(fork);
    if (operation == (*session)->operations.end() || !operation->second.status.has_value()) {
      awaiting_[{session_id, fork}].push_back({time.deadline, fetch});
      return;
    }
  }
  fetch(absl::OkStatus(), time.now, replies);
}

}  // namespace parley
