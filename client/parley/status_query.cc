#include "client/parley/status_query.h"

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/coordinator_address.h"

namespace parley {
namespace {

// Of one question while a job runs: the coordinator is near.
constexpr absl::Duration kAnswer = absl::Seconds(2);

}  // namespace

absl::StatusOr<GetStatusReply> QueryStatus(Connector& connector, FileSystem& files,
                                           const std::string& coordinator, absl::Duration timeout) {
  const auto address = ResolveCoordinator(files, coordinator);
  if (!address.ok()) return address.status();
  struct State {
    absl::Notification answered;
    absl::StatusOr<GetStatusReply> reply = absl::UnavailableError("no answer");
  };
  const auto state = std::make_shared<State>();
  const auto client = connector.ConnectCoordinator(*address);
  client->GetStatus({}, absl::Now() + timeout, [state](absl::StatusOr<GetStatusReply> reply) {
    state->reply = std::move(reply);
    state->answered.Notify();
  });
  // The deadline is the call's own; the wait is a little longer, and for nothing that may not come.
  if (!state->answered.WaitForNotificationWithTimeout(timeout + absl::Seconds(1))) {
    return absl::DeadlineExceededError(
        absl::StrCat("the coordinator at ", *address, " does not answer"));
  }
  if (!state->reply.ok()) {
    const bool is_away = absl::IsUnavailable(state->reply.status()) ||
                         absl::IsDeadlineExceeded(state->reply.status());
    return absl::Status(
        state->reply.status().code(),
        absl::StrCat("the coordinator at ", *address, *address == coordinator ? "" : ", named in ",
                     *address == coordinator ? "" : coordinator,
                     ", does not answer: ", state->reply.status().message(),
                     is_away
                         ? "; if it has died, start it again with the same --job and --out: its "
                           "job goes on without it for as long as the job's `autonomy` says"
                         : ""));
  }
  return state->reply;
}

void StatusPoller::Ask(absl::Time now) {
  {
    absl::MutexLock lock(&answer_->mu);
    if (answer_->open) return;
    if (!answer_->answered) {
      const auto address = ResolveCoordinator(files_, coordinator_);
      if (!address.ok()) return;
      if (*address != address_) client_ = connector_.ConnectCoordinator(address_ = *address);
    }
    answer_->open = true;
  }
  client_->GetStatus({}, now + kAnswer, [answer = answer_](absl::StatusOr<GetStatusReply> reply) {
    absl::MutexLock lock(&answer->mu);
    answer->open = false;
    answer->answered = reply.ok();
    if (!reply.ok()) return;
    answer->reply = *std::move(reply);
  });
}

std::optional<GetStatusReply> StatusPoller::Take() {
  absl::MutexLock lock(&answer_->mu);
  return std::exchange(answer_->reply, std::nullopt);
}

}  // namespace parley
