#include "common/clock/clock_watch.h"

#include <chrono>
#include <thread>
#include <utility>

#include "absl/time/clock.h"

namespace parley {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(100);
constexpr absl::Duration kLookSoon = absl::Milliseconds(1);

// Less is nobody's setting: a thread may lose its core between two readings. To wake for nothing
// does no harm.
constexpr absl::Duration kSet = absl::Milliseconds(10);

absl::Duration WallAheadOfMonotonic() {
  // absl::Now goes by the processor's counter and would hear of it two seconds later.
  return absl::FromChrono(std::chrono::system_clock::now().time_since_epoch()) -
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

ClockWatch& ClockWatch::OfProcess() {
  // Neither ends: threads may sleep for as long as the process lives.
  static ClockWatch* const watch = [] {
    auto* made = new ClockWatch(WallAheadOfMonotonic);
    std::thread([made] {
      while (true) absl::SleepFor(made->Look() ? kLookSoon : kLook);
    }).detach();
    return made;
  }();
  return *watch;
}

ClockWatch::Sleeper::Sleeper(ClockWatch& watch, absl::Mutex& mu) : watch_(watch), mu_(mu) {
  absl::MutexLock lock(&watch_.mu_);
  place_ = watch_.sleepers_.insert(watch_.sleepers_.end(), this);
}

ClockWatch::Sleeper::~Sleeper() {
  absl::MutexLock lock(&watch_.mu_);
  watch_.sleepers_.erase(place_);
}

void ClockWatch::Listen(std::function<void()> listener) {
  absl::MutexLock lock(&mu_);
  listeners_.push_back(std::move(listener));
}

bool ClockWatch::Look() {
  absl::MutexLock lock(&mu_);
  const absl::Duration offset = offset_();
  if (absl::AbsDuration(offset - known_) > kSet) {
    known_ = offset;
    for (Sleeper* sleeper : sleepers_) sleeper->woken_ = true;
    for (const auto& listener : listeners_) listener();
  }
  bool again = false;
  for (Sleeper* sleeper : sleepers_) {
    if (!sleeper->woken_) continue;
    // Who gives up a mutex looks at the conditions that are waited for. It is not waited for here,
    // since its holder may be about to say that it sleeps; and a holder who has looked already may
    // not have given it up yet.
    if (sleeper->mu_.TryLock()) sleeper->mu_.Unlock();
    again = true;
  }
  return again;
}

}  // namespace parley
