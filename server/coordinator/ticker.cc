#include "server/coordinator/ticker.h"

#include <utility>

#include "common/clock/await.h"

namespace parley {

Ticker::Ticker(absl::Duration period, std::function<void()> tick)
    : period_(period), tick_(std::move(tick)), thread_([this] { Run(); }) {}

Ticker::~Ticker() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
}

void Ticker::Run() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (AwaitFor(mu_, absl::Condition(&stopping_), period_)) return;
    }
    tick_();
  }
}

}  // namespace parley
