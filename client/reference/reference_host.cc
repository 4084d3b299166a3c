#include "client/reference/reference_host.h"

#include <utility>

#include "common/clock/await.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

// Retries and leases are seen to at least so often.
constexpr absl::Duration kTick = absl::Milliseconds(5);

}  // namespace

ReferenceHost::ReferenceHost(Options options)
    : options_(std::move(options)), space_(options_.space) {}

void ReferenceHost::Start() {
  clock_ = std::thread([this] { PassTime(); });
}

void ReferenceHost::End() {
  Work farewells;
  absl::Time now;
  {
    Replies replies;
    absl::MutexLock lock(&mu_);
    ended_ = true;
    now = SteadyNow();
    space_.LeaveAll(now, replies);
    // Whoever still waits here is answered: no deadline comes after this.
    space_.Tick(absl::InfiniteFuture(), replies);
    farewells.messages = space_.TakeOutgoing(now);
  }
  if (clock_.joinable()) clock_.join();
  Deliver(std::move(farewells), now);
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &ReferenceHost::IsQuiet));
}

bool ReferenceHost::With(Body body) {
  Work work;
  absl::Time now;
  {
    Replies replies;
    absl::MutexLock lock(&mu_);
    if (ended_) return false;
    now = SteadyNow();
    body(space_, now, replies);
    work = {space_.TakeOutgoing(now), space_.TakeRuns()};
    ++delivering_;
  }
  Deliver(std::move(work), now);
  absl::MutexLock lock(&mu_);
  --delivering_;
  return true;
}

void ReferenceHost::Deliver(Work work, absl::Time now) {
  for (const ToOwner& message : work.messages) {
    options_.send(
        message, message.deadline - now,
        [self = shared_from_this(), token = message.token](absl::StatusOr<FromOwner> reply) {
          if (token == 0) return;  // nobody waits for it
          self->With([&](ReferenceSpace& space, absl::Time now, Replies& replies) {
            space.OnReply(token, std::move(reply), now, replies);
          });
        });
  }
  for (ReferenceSpace::Run& run : work.runs) options_.begin(std::move(run));
}

void ReferenceHost::PassTime() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (AwaitFor(mu_, absl::Condition(&ended_), kTick)) return;
    }
    With([](ReferenceSpace& space, absl::Time now, Replies& replies) { space.Tick(now, replies); });
  }
}

}  // namespace parley
