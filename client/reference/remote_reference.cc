#include "client/reference/remote_reference.h"

#include "absl/synchronization/notification.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

absl::Status OfNothing() { return absl::FailedPreconditionError("a reference of nothing"); }
absl::Status AgentEnded() { return absl::CancelledError("this process's agent has ended"); }

}  // namespace

RemoteReference::Hold::~Hold() {
  host->With([this](ReferenceSpace& space, absl::Time now, Replies& replies) {
    space.Drop(handle, now, replies);
  });
}

void RemoteReference::Fetch(absl::Time deadline, Done<ValuePtr> done) const {
  if (hold_ == nullptr) return done(OfNothing());
  const absl::Duration patience = deadline - SteadyNow();
  // Kept until the answer: what is being fetched is held.
  Done<FetchedValue> fetched = [hold = hold_, done](absl::StatusOr<FetchedValue> fetched) {
    if (!fetched.ok()) return done(fetched.status());
    done(std::move(fetched->value));
  };
  const bool there =
      hold_->host->With([&](ReferenceSpace& space, absl::Time now, Replies& replies) {
        space.Fetch(hold_->handle, {now, now + patience}, replies, std::move(fetched));
      });
  if (!there) done(AgentEnded());
}

absl::StatusOr<ValuePtr> RemoteReference::Fetch(absl::Time deadline) const {
  // Shared: the answer may still be in Notify when this returns.
  struct Waiting {
    absl::Notification came;
    absl::StatusOr<ValuePtr> value;
  };
  const auto waiting = std::make_shared<Waiting>();
  Fetch(deadline, [waiting](absl::StatusOr<ValuePtr> value) {
    waiting->value = std::move(value);
    waiting->came.Notify();
  });
  waiting->came.WaitForNotification();  // ends by the deadline
  return waiting->value;
}

absl::Status RemoteReference::status() const {
  if (hold_ == nullptr) return OfNothing();
  absl::Status status = AgentEnded();
  hold_->host->With([&](ReferenceSpace& space, absl::Time now, Replies&) {
    status = space.StatusOf(hold_->handle, now);
  });
  return status;
}

}  // namespace parley
