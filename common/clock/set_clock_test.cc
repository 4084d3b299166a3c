// Waits while the machine's clock is set: on a clock of this process's own, which is (see
// testing/settable_clock.h).
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "absl/time/clock.h"
#include "common/clock/await.h"
#include "common/clock/steady_notification.h"
#include "common/clock/steady_now.h"
#include "common/clock/testing/settable_clock.h"
#include "gtest/gtest.h"

namespace parley {
namespace {

constexpr absl::Duration kLimit = absl::Milliseconds(600);
// Of an hour, which the clock is set back by, nobody waits more than this.
constexpr absl::Duration kSoon = absl::Seconds(20);

// absl::Now hears of the clock's setting two seconds later.
absl::Time WallNow() { return absl::FromChrono(std::chrono::system_clock::now()); }

class SetClock : public testing::TestWithParam<absl::Duration> {
 protected:
  ~SetClock() override { SetWallClockAhead(absl::ZeroDuration()); }

  // How long `wait` takes while the clock is set.
  static absl::Duration Measure(const std::function<void()>& wait) {
    std::thread setter([] {
      absl::SleepFor(kLimit / 6);
      SetWallClockAhead(GetParam());
    });
    const absl::Time begin = SteadyNow();
    wait();
    const absl::Duration took = SteadyNow() - begin;
    setter.join();
    return took;
  }
};

INSTANTIATE_TEST_SUITE_P(All, SetClock, testing::Values(absl::Hours(1), -absl::Hours(1)),
                         [](const auto& info) {
                           return info.param > absl::ZeroDuration() ? "Forward" : "Back";
                         });

TEST_P(SetClock, ALimitIsTheSame) {
  absl::Mutex mu;
  bool never = false;
  bool came = true;
  const absl::Duration took = Measure([&] {
    absl::MutexLock lock(&mu);
    came = AwaitFor(mu, absl::Condition(&never), kLimit);
  });
  EXPECT_FALSE(came);
  EXPECT_GE(took, kLimit);
  EXPECT_LT(took, kSoon);
}

TEST_P(SetClock, ANotificationIsWaitedForAsLong) {
  const SteadyNotification never;
  bool came = true;
  const absl::Duration took = Measure([&] { came = never.WaitUntil(SteadyNow() + kLimit); });
  EXPECT_FALSE(came);
  EXPECT_GE(took, kLimit);
  EXPECT_LT(took, kSoon);
}

TEST_P(SetClock, WhatComesIsSeen) {
  SteadyNotification notification;
  std::thread notifier([&] {
    absl::SleepFor(kLimit);
    notification.Notify();
  });
  bool came = false;
  (void)Measure([&] { came = notification.WaitFor(kSoon); });
  EXPECT_TRUE(came);
  EXPECT_TRUE(notification.HasBeenNotified());
  notifier.join();
}

TEST_P(SetClock, TheSteadyTimeDoesNotKnow) {
  const absl::Time steady = SteadyNow();
  const absl::Time wall = WallNow();
  SetWallClockAhead(GetParam());
  EXPECT_LT(absl::AbsDuration(SteadyNow() - steady), kSoon);
  EXPECT_GT(absl::AbsDuration(WallNow() - wall), kSoon);
  EXPECT_LT(absl::AbsDuration(WallAheadOfSteady() - GetParam()), absl::Seconds(1));
  SetWallClockAhead(absl::ZeroDuration());
  EXPECT_EQ(WallAheadOfSteady(), absl::ZeroDuration());
}

// Else the tests above would show nothing.
TEST(SettableClock, AbseilsOwnWaitEndsWithIt) {
  absl::Mutex mu;
  bool never = false;
  std::thread setter([] {
    absl::SleepFor(kLimit / 6);
    SetWallClockAhead(absl::Hours(1));
  });
  const absl::Time begin = SteadyNow();
  {
    absl::MutexLock lock(&mu);
    (void)mu.AwaitWithTimeout(absl::Condition(&never), absl::Minutes(50));
  }
  EXPECT_LT(SteadyNow() - begin, kSoon);
  setter.join();
  SetWallClockAhead(absl::ZeroDuration());
}

TEST(SteadyNotification, MayGoAsSoonAsItHasCome) {
  for (int i = 0; i < 1000; ++i) {
    auto notification = std::make_unique<SteadyNotification>();
    std::thread notifier([&] { notification->Notify(); });
    EXPECT_TRUE(notification->WaitUntil(absl::InfiniteFuture()));
    notification.reset();
    notifier.join();
  }
}

}  // namespace
}  // namespace parley
