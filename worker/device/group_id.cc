#include "worker/device/group_id.h"

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "common/shared_memory/local_socket.h"

namespace parley {
namespace {

constexpr absl::Duration kAskAgain = absl::Milliseconds(5);

absl::Status WhyOver(const GroupIdExchange& exchange, absl::Time deadline) {
  if (exchange.cancelled && exchange.cancelled()) {
    return absl::CancelledError("the node group has another composition");
  }
  if (SteadyNow() <= deadline) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("rank ", exchange.rank, " of a node group of ", exchange.ranks,
                   ": the other ranks have not come to find each other's GPUs"));
}

// Rank 0: the thread accepts, this one watches for the end.
absl::StatusOr<std::string> Tell(const GroupIdExchange& exchange, absl::Time deadline) {
  auto id = exchange.make_id();
  if (!id.ok() || exchange.ranks == 1) return id;
  // The name may be a former process's for a moment yet.
  absl::StatusOr<std::unique_ptr<LocalListener>> listener = LocalListener::Listen(exchange.name);
  while (!listener.ok()) {
    if (!absl::IsUnavailable(listener.status())) return listener.status();
    if (absl::Status over = WhyOver(exchange, deadline); !over.ok()) return over;
    absl::SleepFor(kAskAgain);
    listener = LocalListener::Listen(exchange.name);
  }
  std::atomic<uint32_t> told = 0;
  std::thread door([&] {
    while (told + 1 < exchange.ranks) {
      auto socket = (*listener)->Accept();
      if (!socket.ok()) return;  // shut down
      // One that goes before it has read asks again, or is lost; then there is another composition.
      if ((*socket)->Send(*id).ok()) ++told;
    }
  });
  absl::Status over;
  while (told + 1 < exchange.ranks && (over = WhyOver(exchange, deadline)).ok()) {
    absl::SleepFor(kAskAgain);
  }
  (*listener)->Shutdown();
  door.join();
  if (told + 1 < exchange.ranks) return over;
  return id;
}

absl::StatusOr<std::string> Ask(const GroupIdExchange& exchange, absl::Time deadline) {
  while (true) {
    if (auto socket = LocalSocket::Connect(exchange.name); socket.ok()) {
      auto answer = (*socket)->Receive(SteadyNow() + kAskAgain);
      while (absl::IsDeadlineExceeded(answer.status()) && WhyOver(exchange, deadline).ok()) {
        answer = (*socket)->Receive(SteadyNow() + kAskAgain);
      }
      if (answer.ok()) return std::move(answer->bytes);
    }
    if (absl::Status over = WhyOver(exchange, deadline); !over.ok()) return over;
    absl::SleepFor(kAskAgain);
  }
}

}  // namespace

absl::StatusOr<std::string> ExchangeGroupId(const GroupIdExchange& exchange, absl::Time deadline) {
  return exchange.rank == 0 ? Tell(exchange, deadline) : Ask(exchange, deadline);
}

}  // namespace parley
