#include "common/clock/clock_watch.h"

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(100);
constexpr absl::Duration kLookSoon = absl::Milliseconds(1);

// Less is nobody's setting: a thread may lose its core between two readings. To wake for nothing
// does no harm.
constexpr absl::Duration kSet = absl::Milliseconds(10);

}  // namespace

ClockWatch& ClockWatch::OfProcess() {
  // Neither ends: threads may sleep for as long as the process lives.
  static ClockWatch* const watch = [] {
    auto* made = new ClockWatch(WallAheadOfSteady);
    // Signals are for the process's other threads, some of which may not be there yet.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([made] {
        while (true) absl::SleepFor(made->Look() ? kLookSoon : kLook);
      }).detach();
    } catch (const std::system_error&) {
      // No thread is to be had: then waits are as long as Abseil's.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return made;
  }();
  return *watch;
}

ClockWatch::Sleeper::Sleeper(ClockWatch& watch, absl::Mutex& mu) : watch_(watch), mu_(mu) {
  absl::MutexLock lock(&watch_.mu_);
  offset_ = watch_.offset_();
  place_ = watch_.sleepers_.insert(watch_.sleepers_.end(), this);
}

void ClockWatch::Sleeper::BeginSleep() {
  absl::MutexLock lock(&watch_.mu_);
  offset_ = watch_.offset_();
  woken_ = false;
}

ClockWatch::Sleeper::~Sleeper() {
  absl::MutexLock lock(&watch_.mu_);
  watch_.sleepers_.erase(place_);
}

ClockWatch::Listener::Listener(ClockWatch& watch, Hear hear) : watch_(watch) {
  absl::MutexLock lock(&watch_.listeners_mu_);
  place_ = watch_.listeners_.insert(watch_.listeners_.begin(), std::move(hear));
}

ClockWatch::Listener::~Listener() {
  absl::MutexLock lock(&watch_.listeners_mu_);
  watch_.listeners_.erase(place_);
}

bool ClockWatch::Look() {
  absl::Duration by;
  bool again = false;
  {
    absl::MutexLock lock(&mu_);
    by = Compare();
    again = Wake();
  }
  if (by != absl::ZeroDuration()) {
    absl::MutexLock lock(&listeners_mu_);
    for (const Listener::Hear& hear : listeners_) hear(by);
  }
  return again;
}

absl::Duration ClockWatch::Compare() {
  const absl::Duration offset = offset_();
  for (Sleeper* sleeper : sleepers_) {
    // It may have begun since the last look, by a clock that was set back by now.
    if (absl::AbsDuration(offset - sleeper->offset_) > kSet) sleeper->woken_ = true;
  }
  const absl::Duration by = offset - known_;
  if (absl::AbsDuration(by) <= kSet) return absl::ZeroDuration();
  known_ = offset;
  return by;
}

bool ClockWatch::Wake() {
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
