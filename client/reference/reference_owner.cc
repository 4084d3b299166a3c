#include "client/reference/reference_owner.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/seed.h"

namespace parley {
namespace {

constexpr char kSessionOver[] =
    "its session is over: it was not renewed in time, or has been given up";

absl::Status Gone(const ReferenceId& id) {
  return absl::NotFoundError(absl::StrCat("the value of reference ", ToString(id), " is gone"));
}

absl::Status StepEnded(const StepScope& scope) {
  return absl::FailedPreconditionError(
      absl::StrFormat("step %d, attempt %d, has ended", scope.step, scope.attempt));
}

absl::Status AnsweredBefore() {
  return absl::AlreadyExistsError("this call has been answered before");
}

uint64_t DigestOf(uint64_t fork) { return DeriveSeed(fork, "fork"); }

}  // namespace

// --- Time and sessions
// -----------------------------------------------------------------------------------------------

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
    return then(Gone(id), now, replies);
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
        Answer(session_id, number, made.ok() && entry == entries_.end() ? Gone(id) : made, now,
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
  const absl::Status dropped = absl::CancelledError("it was dropped before it came");
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
    replies.Add<FetchedValue>(std::move(waiting.done), Gone(id));
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

// --- Of this process
// -------------------------------------------------------------------------------------------------

ReferenceId ReferenceOwner::Make(ValuePtr value, const StepScope& scope) {
  const ReferenceId id{options_.incarnation, 0, next_own_++};
  Entry& entry = entries_[id];
  entry.value = std::move(value);
  entry.pins = 1;
  entry.scope = scope;
  return id;
}

void ReferenceOwner::Pin(const ReferenceId& id, absl::Time now, Replies& replies, Then then) {
  Expire(now, replies);
  WhenMade(id, now, replies,
           [this, id, then = std::move(then)](const absl::Status& made, absl::Time now,
                                              Replies& replies) {
             const auto entry = entries_.find(id);
             if (made.ok() && entry != entries_.end()) ++entry->second.pins;
             then(made.ok() && entry == entries_.end() ? Gone(id) : made, now, replies);
           });
}

void ReferenceOwner::PinAgain(const ReferenceId& id) {
  const auto entry = entries_.find(id);
  if (entry != entries_.end()) ++entry->second.pins;
}

void ReferenceOwner::Unpin(const ReferenceId& id, absl::Time, Replies& replies) {
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return;  // its step has ended
  --entry->second.pins;
  FreeIfUnused(id, Why::kUnused, replies);
}

void ReferenceOwner::Await(const ReferenceId& id, CallTime time, Replies& replies,
                           Done<FetchedValue> done) {
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) {
    return replies.Add<FetchedValue>(std::move(done), Gone(id));
  }
  if (entry->second.value.has_value()) {
    return replies.Add<FetchedValue>(std::move(done), FetchedValue{*entry->second.value});
  }
  entry->second.waiting.push_back({time.deadline, std::move(done)});
}

ValuePtr ReferenceOwner::Ready(const ReferenceId& id) const {
  const auto entry = entries_.find(id);
  if (entry == entries_.end() || !entry->second.value.has_value() || !entry->second.value->ok()) {
    return nullptr;
  }
  return **entry->second.value;
}

StepScope ReferenceOwner::ScopeOf(const ReferenceId& id) const {
  const auto entry = entries_.find(id);
  return entry == entries_.end() ? StepScope() : entry->second.scope;
}

void ReferenceOwner::EndStep(const StepScope& scope, absl::Time now, Replies& replies) {
  Expire(now, replies);
  ended_ = std::max(ended_, scope);
  std::vector<ReferenceId> of_it;
  for (const auto& [id, entry] : entries_) {
    if (entry.scope.step != 0 && entry.scope <= scope) of_it.push_back(id);
  }
  for (const ReferenceId& id : of_it) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) continue;
    Entry& entry = found->second;
    for (const auto& [session, fork] : entry.forks) sessions_.at(session).forks.erase(fork);
    entry.forks.clear();
    entry.pins = 0;
    if (!entry.value.has_value()) cancelled_.push_back(id);
    for (WaitingFetch& waiting : entry.waiting) {
      replies.Add<FetchedValue>(std::move(waiting.done), StepEnded(entry.scope));
    }
    entry.waiting.clear();
    FreeIfUnused(id, Why::kStepEnded, replies);
    // Its arguments may still be being asked for; the call has been accepted all the same.
    if (id.session != 0) Answer(id.session, id.number, absl::OkStatus(), now, replies);
  }
}

// --- What there is
// ---------------------------------------------------------------------------------------------------

size_t ReferenceOwner::operations() const {
  size_t count = 0;
  for (const auto& [id, session] : sessions_) count += session.operations.size();
  return count;
}

size_t ReferenceOwner::waiting() const {
  size_t count = 0;
  for (const auto& [call, awaiting] : awaiting_) count += awaiting.size();
  for (const auto& [id, entry] : entries_) count += entry.waiting.size();
  for (const auto& [id, session] : sessions_) {
    for (const auto& [number, operation] : session.operations) count += operation.parked.size();
  }
  return count;
}

bool ReferenceOwner::Holds(uint64_t session, uint64_t fork) const {
  const auto found = sessions_.find(session);
  return found != sessions_.end() && found->second.forks.contains(fork);
}

}  // namespace parley
