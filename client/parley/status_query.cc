#include "client/parley/status_query.h"

#include "client/coordinator_address.h"
#include "client/parley/ask_coordinator.h"

namespace parley {
namespace {

// Of one question while a job runs: the coordinator is near.
constexpr absl::Duration kAnswer = absl::Seconds(2);

}  // namespace

absl::StatusOr<GetStatusReply> QueryStatus(Connector& connector, FileSystem& files,
                                           const std::string& coordinator, absl::Duration timeout) {
  return AskCoordinator(connector, files, coordinator, &CoordinatorClient::GetStatus,
                        GetStatusRequest(), timeout);
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
