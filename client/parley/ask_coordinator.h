#ifndef PARLEY_CLIENT_PARLEY_ASK_COORDINATOR_H_
#define PARLEY_CLIENT_PARLEY_ASK_COORDINATOR_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/connector.h"
#include "client/coordinator_address.h"
#include "client/forwarding_coordinator.h"
#include "common/clock/steady_notification.h"
#include "common/clock/steady_now.h"
#include "common/file_system.h"

namespace parley {

// What to say of a coordinator that gave no answer, with what can be done. `coordinator`: as the
// option named it.
absl::Status NoAnswer(const absl::Status& status, const std::string& address,
                      const std::string& coordinator);

// One call of the coordinator that a --coordinator option names; waits for the answer, at most
// `timeout`. Whatever fails, the message names the address or the file.
template <class Request, class Reply>
absl::StatusOr<Reply> AskCoordinator(Connector& connector, FileSystem& files,
                                     const std::string& coordinator,
                                     CoordinatorMethod<Request, Reply> method,
                                     const Request& request, absl::Duration timeout) {
  const auto address = ResolveCoordinator(files, coordinator);
  if (!address.ok()) return address.status();
  struct State {
    SteadyNotification answered;
    absl::StatusOr<Reply> reply = absl::UnavailableError("no answer");
  };
  const auto state = std::make_shared<State>();
  const auto client = connector.ConnectCoordinator(*address);
  ((*client).*method)(request, SteadyNow() + timeout, [state](absl::StatusOr<Reply> reply) {
    state->reply = std::move(reply);
    state->answered.Notify();
  });
  // The deadline is the call's own; the wait is a little longer, and for nothing that may not come.
  if (!state->answered.WaitFor(timeout + absl::Seconds(1))) {
    return absl::DeadlineExceededError(
        absl::StrCat("the coordinator at ", *address, " does not answer"));
  }
  if (!state->reply.ok()) return NoAnswer(state->reply.status(), *address, coordinator);
  return state->reply;
}

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_ASK_COORDINATOR_H_
