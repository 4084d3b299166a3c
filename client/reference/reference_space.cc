#include "client/reference/reference_space.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/reference/reference_errors.h"

namespace parley {

ReferenceSpace::ReferenceSpace(Options options, ReferenceOwner::Observer observer)
    : options_(std::move(options)),
      owner_({options_.job, options_.incarnation, options_.lease, options_.draw_session},
             std::move(observer)),
      holder_({options_.job, options_.incarnation, options_.address, options_.margin,
               options_.patience, options_.attempt, options_.retry, options_.gather}) {}

// --- For the user
// ----------------------------------------------------------------------------------------------------

ReferenceSpace::Handle ReferenceSpace::Own(const ReferenceId& id, const ReferenceScope& scope) {
  const Handle handle = next_handle_++;
  Reference& reference = references_[handle];
  reference.own = id;
  reference.scope = scope;
  return handle;
}

ReferenceSpace::Handle ReferenceSpace::Held(ReferenceHolder::HeldId held,
                                            const ReferenceScope& scope) {
  const Handle handle = next_handle_++;
  Reference& reference = references_[handle];
  reference.held = held;
  reference.scope = scope;
  return handle;
}

ReferenceSpace::Handle ReferenceSpace::Make(ValuePtr value, const ReferenceScope& scope) {
  return Own(owner_.Make(std::move(value), StepOf(scope)), scope);
}

void ReferenceSpace::Connect(const std::string& address, absl::Time now, Replies& replies,
                             Then then) {
  holder_.Connect(address, now, replies, std::move(then));
}

ReferenceId ReferenceSpace::IdOf(Handle handle) const {
  const Reference& reference = references_.at(handle);
  return reference.held == 0 ? reference.own : holder_.IdOf(reference.held);
}

absl::Status ReferenceSpace::StatusOf(Handle handle, absl::Time now) const {
  const Reference& reference = references_.at(handle);
  if (reference.held != 0) return holder_.StatusOf(reference.held, now);
  return owner_.Has(reference.own) ? absl::OkStatus() : StepEnded(StepOf(reference.scope));
}

ReferenceOwner::Given ReferenceSpace::PlaceOf(Handle handle) const {
  return holder_.PlaceOf(references_.at(handle).held);
}

absl::StatusOr<ReferenceSpace::Handle> ReferenceSpace::Call(const std::string& address,
                                                            const std::string& function,
                                                            absl::Span<const Handle> arguments,
                                                            const ReferenceScope& scope,
                                                            bool send_ahead, absl::Time now,
                                                            Replies& replies, Answered answered) {
  const uint64_t callee = holder_.OwnerAt(address);
  if (callee == 0) {
    return absl::FailedPreconditionError(absl::StrCat("not connected to ", address));
  }
  for (const Handle handle : arguments) {
    const absl::Status status = StatusOf(handle, now);
    if (!status.ok()) return status;
  }
  OutgoingCall call;
  call.head.set_function(function);
  *call.head.mutable_scope() = scope;
  // Until the callee has said that it holds them itself, none of the arguments is let go of: these
  // are the pending children of our forks.
  std::vector<Handle> lent;
  std::vector<ReferenceOwner::Given> given;
  for (const Handle handle : arguments) {
    const Reference& reference = references_.at(handle);
    ReferenceArgument& argument = *call.head.add_arguments();
    ToMessage(IdOf(handle), *argument.mutable_name());
    *argument.mutable_scope() = reference.scope;
    ValuePtr ahead;
    if (reference.held == 0) {
      argument.set_owner_address(options_.address);
      // A process that calls itself pins its own.
      const auto fork =
          callee == options_.incarnation ? std::nullopt : owner_.Give(reference.own, callee);
      if (fork.has_value()) {
        argument.set_given_session(fork->session);
        argument.set_given_fork(fork->fork);
        given.push_back(*fork);
        if (send_ahead) ahead = owner_.Ready(reference.own);
      }
    } else {
      argument.set_owner_address(holder_.AddressOf(reference.held));
    }
    call.ahead.push_back(std::move(ahead));
    lent.push_back(Copy(handle));
  }
  auto ended = [this, lent, given](const absl::Status&, ReferenceHolder::Accepted accepted,
                                   absl::Time now, Replies& replies) {
    for (const auto& fork : given) {
      if (accepted == ReferenceHolder::Accepted::kNo) owner_.TakeBack(fork, now, replies);
      if (accepted == ReferenceHolder::Accepted::kUnknown) owner_.Revoke(fork, now, replies);
    }
    for (const Handle handle : lent) Drop(handle, now, replies);
    DropCancelled(now, replies);
  };
  const absl::StatusOr<ReferenceHolder::HeldId> held =
      holder_.Call(address, std::move(call), now,
                   [ended, answered = std::move(answered)](const absl::Status& status,
                                                           ReferenceHolder::Accepted accepted,
                                                           absl::Time now, Replies& replies) {
                     ended(status, accepted, now, replies);
                     if (answered) replies.Add([answered, status] { answered(status); });
                   });
  if (!held.ok()) {
    ended(held.status(), ReferenceHolder::Accepted::kNo, now, replies);
    return held.status();
  }
  return Held(*held, scope);
}

void ReferenceSpace::Fetch(Handle handle, CallTime time, Replies& replies,
                           Done<FetchedValue> done) {
  const Reference& reference = references_.at(handle);
  if (reference.held != 0) return holder_.Fetch(reference.held, time, replies, std::move(done));
  if (!owner_.Has(reference.own)) {
    return replies.Add<FetchedValue>(std::move(done), StatusOf(handle, time.now));
  }
  owner_.Await(reference.own, time, replies, std::move(done));
}

ReferenceSpace::Handle ReferenceSpace::Copy(Handle handle) {
  ++references_.at(handle).copies;
  return handle;
}

void ReferenceSpace::Drop(Handle handle, absl::Time now, Replies& replies) {
  const auto found = references_.find(handle);
  if (--found->second.copies != 0) return;
  const Reference reference = found->second;
  references_.erase(found);
  if (reference.held != 0) {
    holder_.Release(reference.held, now, replies);
  } else {
    owner_.Unpin(reference.own, now, replies);
  }
}

void ReferenceSpace::EndStep(const StepScope& scope, absl::Time now, Replies& replies) {
  holder_.EndStep(scope, now, replies);
  owner_.EndStep(scope, now, replies);
  DropCancelled(now, replies);
}

// --- Calls that come
// -------------------------------------------------------------------------------------------------

void ReferenceSpace::OnCall(const OutgoingCall& call, CallTime time, Replies& replies,
                            Done<RemoteCallReply> done) {
  const std::optional<ReferenceId> id = owner_.BeginCall(call.head, time, replies, std::move(done));
  DropCancelled(time.now, replies);
  if (!id.has_value()) return;
  Arriving& arriving = arriving_[*id];
  arriving.run.call = *id;
  arriving.run.function = call.head.function();
  arriving.run.scope = call.head.scope();
  const size_t count = static_cast<size_t>(call.head.arguments_size());
  arriving.run.arguments.resize(count);
  arriving.open = count + 1;  // so that it does not begin while there are more
  for (size_t i = 0; i < count; ++i) {
    Argue(*id, i, call.head.arguments(static_cast<int>(i)),
          i < call.ahead.size() ? call.ahead[i] : nullptr, time.now, replies);
  }
  Settle(*id, absl::OkStatus(), time.now, replies);
}

void ReferenceSpace::Argue(const ReferenceId& call, size_t index, const ReferenceArgument& argument,
                           ValuePtr ahead, absl::Time now, Replies& replies) {
  const ReferenceId id = FromMessage(argument.name());
  const ReferenceScope& scope = argument.scope();
  if (!arriving_.contains(call)) return;  // given up while an earlier argument was looked at
  if (id.owner == options_.incarnation) {
    owner_.Pin(id, now, replies,
               [this, call, index, id, scope](const absl::Status& status, absl::Time now,
                                              Replies& replies) {
                 const auto arriving = arriving_.find(call);
                 if (arriving == arriving_.end()) {
                   if (status.ok()) owner_.Unpin(id, now, replies);
                   return;
                 }
                 if (status.ok()) arriving->second.run.arguments[index] = Own(id, scope);
                 Settle(call, status, now, replies);
               });
    return;
  }
  if (argument.given_fork() != 0) {
    const auto held = holder_.Accept(id, StepOf(scope),
                                     {argument.given_session(), argument.given_fork()}, ahead, now);
    if (held.has_value()) {
      arriving_.at(call).run.arguments[index] = Held(*held, scope);
      return Settle(call, absl::OkStatus(), now, replies);
    }
  }
  const ReferenceHolder::HeldId held =
      holder_.Fork(id, argument.owner_address(), StepOf(scope), now, replies,
                   [this, call](const absl::Status& status, absl::Time now, Replies& replies) {
                     Settle(call, status, now, replies);
                   });
  // To look for a link is to notice which have died, and that may have given up the call.
  const auto arriving = arriving_.find(call);
  if (arriving == arriving_.end()) return holder_.Abandon(held, now, replies);
  arriving->second.run.arguments[index] = Held(held, scope);
}

// One more argument is held, or will never be.
void ReferenceSpace::Settle(const ReferenceId& call, const absl::Status& status, absl::Time now,
                            Replies& replies) {
  const auto found = arriving_.find(call);
  if (found == arriving_.end()) return;
  Arriving& arriving = found->second;
  if (arriving.failed.ok()) arriving.failed = status;
  if (--arriving.open != 0) return;
  const absl::Status failed = arriving.failed;
  Run run = std::move(arriving.run);
  arriving_.erase(found);
  owner_.ConfirmCall(call, now, replies);
  if (failed.ok()) {
    ready_.push_back(std::move(run));
  } else {
    DropArguments(run, /*at_once=*/false, now, replies);
    owner_.Finish(call,
                  absl::Status(failed.code(), absl::StrCat("an argument of ", run.function, ": ",
                                                           failed.message())),
                  now, replies);
  }
}

void ReferenceSpace::DropArguments(const Run& run, bool at_once, absl::Time now, Replies& replies) {
  for (const Handle handle : run.arguments) {
    if (handle == 0) continue;
    const auto found = references_.find(handle);
    if (at_once && found->second.held != 0 && found->second.copies == 1) {
      const ReferenceHolder::HeldId held = found->second.held;
      references_.erase(found);
      holder_.Abandon(held, now, replies);
    } else {
      Drop(handle, now, replies);
    }
  }
}

void ReferenceSpace::DropCancelled(absl::Time now, Replies& replies) {
  for (const ReferenceId& call : owner_.TakeCancelled()) {
    Run run;
    if (auto node = arriving_.extract(call)) {
      run = std::move(node.mapped().run);
    } else {
      const auto ready = std::find_if(ready_.begin(), ready_.end(),
                                      [&](const Run& one) { return one.call == call; });
      if (ready == ready_.end()) continue;  // it runs
      run = std::move(*ready);
      ready_.erase(ready);
    }
    DropArguments(run, /*at_once=*/true, now, replies);
    owner_.Finish(call, absl::CancelledError("nobody waits for it any more"), now, replies);
  }
}

std::vector<ReferenceSpace::Run> ReferenceSpace::TakeRuns() {
  std::vector<Run> runs(std::make_move_iterator(ready_.begin()),
                        std::make_move_iterator(ready_.end()));
  ready_.clear();
  return runs;
}

void ReferenceSpace::Finish(const Run& run, absl::StatusOr<ValuePtr> value, absl::Time now,
                            Replies& replies) {
  owner_.Finish(run.call, std::move(value), now, replies);
  DropArguments(run, /*at_once=*/false, now, replies);
}

// --- For the service adapter
// -----------------------------------------------------------------------------------------

void ReferenceSpace::Tick(absl::Time now, Replies& replies) {
  owner_.Tick(now, replies);
  holder_.Tick(now, replies);
  DropCancelled(now, replies);
}

void ReferenceSpace::OnReply(uint64_t token, absl::StatusOr<FromOwner> reply, absl::Time now,
                             Replies& replies) {
  holder_.OnReply(token, std::move(reply), now, replies);
  DropCancelled(now, replies);
}

absl::StatusOr<OpenSessionReply> ReferenceSpace::OnOpen(const OpenSessionRequest& request,
                                                        absl::Time now, Replies& replies) {
  auto reply = owner_.Open(request, now, replies);
  DropCancelled(now, replies);
  return reply;
}

absl::StatusOr<RenewSessionReply> ReferenceSpace::OnRenew(const RenewSessionRequest& request,
                                                          absl::Time now, Replies& replies) {
  auto reply = owner_.Renew(request, now, replies);
  DropCancelled(now, replies);
  return reply;
}

void ReferenceSpace::OnLeave(const LeaveSessionRequest& request, absl::Time now, Replies& replies) {
  owner_.Leave(request, now, replies);
  DropCancelled(now, replies);
}

void ReferenceSpace::OnFork(const ForkRequest& request, CallTime time, Replies& replies,
                            Done<ForkReply> done) {
  owner_.Fork(request, time, replies, std::move(done));
  DropCancelled(time.now, replies);
}

void ReferenceSpace::OnDrop(const DropRequest& request, CallTime time, Replies& replies,
                            Done<DropReply> done) {
  owner_.Drop(request, time, replies, std::move(done));
  DropCancelled(time.now, replies);
}

void ReferenceSpace::OnFetch(const FetchRequest& request, CallTime time, Replies& replies,
                             Done<FetchedValue> done) {
  owner_.Fetch(request, time, replies, std::move(done));
  DropCancelled(time.now, replies);
}

}  // namespace parley
