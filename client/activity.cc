#include "client/activity.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {

void Activity::Work(std::string what, uint64_t step) {
  absl::MutexLock lock(&mu_);
  work_ = std::move(what);
  working_since_ = runtime_->Now();
  step_ = step;
}

void Activity::Decided(uint64_t step) {
  absl::MutexLock lock(&mu_);
  decided_ = step;
}

Activity::Waiting::Waiting(Activity& activity, std::string what, absl::Time deadline)
    : activity_(activity) {
  absl::MutexLock lock(&activity_.mu_);
  outer_ = std::exchange(activity_.waiting_,
                         WaitingFor{std::move(what), activity_.runtime_->Now(), deadline});
}

Activity::Waiting::~Waiting() {
  absl::MutexLock lock(&activity_.mu_);
  const absl::Time now = activity_.runtime_->Now();
  if (activity_.trace_ != nullptr) {
    activity_.trace_->Span(activity_.waiting_->what, activity_.waiting_->since, now);
  }
  activity_.waiting_ = std::move(outer_);
  // What it works on between two waits begins after the first.
  activity_.working_since_ = now;
}

uint64_t Activity::CallBegun(Role role, uint32_t ordinal, std::string what, bool ahead) {
  absl::MutexLock lock(&mu_);
  calls_[++last_call_] = {role, ordinal, std::move(what), runtime_->Now(), ahead};
  return last_call_;
}

void Activity::CallEnded(uint64_t call) {
  absl::MutexLock lock(&mu_);
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  if (trace_ != nullptr) {
    const Call& ended = found->second;
    trace_->Call(ended.role == SHARD ? absl::StrCat("shard ", ended.ordinal) : "coordinator",
                 ended.what, ended.since, runtime_->Now());
  }
  calls_.erase(found);
}

void Activity::ForgetCalls() {
  absl::MutexLock lock(&mu_);
  calls_.clear();
}

void Activity::Tell(WaitsReply& reply) const {
  const absl::Time now = runtime_->Now();
  absl::MutexLock lock(&mu_);
  reply.set_step(decided_);
  const auto add = [&](std::string what, absl::Time since) -> Wait& {
    Wait* const wait = reply.add_waits();
    wait->set_what(std::move(what));
    wait->set_seconds(std::max(0.0, absl::ToDoubleSeconds(now - since)));
    return *wait;
  };
  if (!waiting_.has_value()) {
    add(work_, working_since_).set_step(step_);
    return;
  }
  const WaitingFor& waiting = *waiting_;
  const auto wait_for = [&, step = step_](Role role, uint32_t ordinal, std::string what,
                                          absl::Time since) {
    Wait& wait = add(std::move(what), since);
    wait.set_step(step);
    wait.set_seconds_left(std::max(0.0, absl::ToDoubleSeconds(waiting.deadline - now)));
    WaitedFor* const on = wait.add_on();
    on->set_role(role);
    on->set_ordinal(ordinal);
  };
  struct Place {
    const Call* oldest = nullptr;
    size_t calls = 0;
  };
  const bool only_ahead =
      std::all_of(calls_.begin(), calls_.end(), [](const auto& call) { return call.second.ahead; });
  std::map<std::pair<Role, uint32_t>, Place> places;
  for (const auto& [number, call] : calls_) {
    if (call.ahead && !only_ahead) continue;
    Place& place = places[{call.role, call.ordinal}];
    if (place.oldest == nullptr) place.oldest = &call;  // numbers rise with time
    ++place.calls;
  }
  for (const auto& [at, place] : places) {
    std::string what = absl::StrCat(waiting.what, ": ", place.oldest->what);
    if (place.calls > 1) absl::StrAppend(&what, ", and ", place.calls - 1, " more calls");
    wait_for(at.first, at.second, std::move(what), place.oldest->since);
  }
  // Without a call it waits for a state of the job, which the coordinator tells.
  if (places.empty()) wait_for(COORDINATOR, 0, waiting.what, waiting.since);
}

}  // namespace parley
