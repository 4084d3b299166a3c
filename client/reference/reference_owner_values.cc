// The values of this process: what it makes, pins and awaits itself, and the end of their step.
#include <algorithm>
#include <utility>

#include "client/reference/reference_errors.h"
#include "client/reference/reference_owner.h"

namespace parley {

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
             then(made.ok() && entry == entries_.end() ? ValueGone(id) : made, now, replies);
           });
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
    return replies.Add<FetchedValue>(std::move(done), ValueGone(id));
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
