#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_WITHIN_TIME_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_WITHIN_TIME_H_

#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "common/clock/steady_notification.h"

namespace parley {

// What `work` gives, or nothing if it takes longer than `limit`: then the thread that it runs on is
// left behind, since nobody can call back a call that waits for a dead file server, name server or
// driver. So `work` must own all that it uses. Nothing either where there is no thread to be had.
template <class Work>
auto WithinTime(absl::Duration limit, Work work) -> std::optional<decltype(work())> {
  struct State {
    SteadyNotification done;
    std::optional<decltype(work())> result;
  };
  const auto state = std::make_shared<State>();
  try {
    std::thread([state, work = std::move(work)]() mutable {
      state->result = work();
      state->done.Notify();
    }).detach();
  } catch (const std::system_error&) {
    return std::nullopt;
  }
  if (!state->done.WaitFor(limit)) return std::nullopt;
  return std::move(state->result);
}

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_WITHIN_TIME_H_
