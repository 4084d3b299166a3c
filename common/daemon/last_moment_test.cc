#include "common/daemon/last_moment.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace parley {
namespace {

TEST(LastMomentTest, WhoIsStillThereGoesThen) {
  absl::Notification went;
  LastMoment last([&] { went.Notify(); });
  last.SetIn(absl::Milliseconds(10));
  EXPECT_TRUE(went.WaitForNotificationWithTimeout(absl::Minutes(1)));
}

TEST(LastMomentTest, TheEarliestOfSeveralTimesCountsAndOnce) {
  std::atomic<int> went = 0;
  {
    LastMoment last([&] { ++went; });
    last.SetIn(absl::Hours(1));
    last.SetIn(absl::Milliseconds(10));
    last.SetIn(absl::Milliseconds(10));
    const absl::Time end = absl::Now() + absl::Minutes(1);
    while (went == 0 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(10));
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_EQ(went, 1);
}

TEST(LastMomentTest, WhoHasGoneBeforeIsLeftAlone) {
  bool went = false;
  {
    LastMoment last([&] { went = true; });
    last.SetIn(absl::Hours(1));
  }
  {
    const LastMoment nobody_was_told([&] { went = true; });
  }
  EXPECT_FALSE(went);
}

TEST(LastMomentTest, ATimeThatDoesNotHoldAnyMoreCountsForNothing) {
  absl::Notification asked;
  absl::Notification went;
  LastMoment last([&] { went.Notify(); });
  last.SetIn(absl::Milliseconds(10), [&] {
    asked.Notify();
    return false;
  });
  EXPECT_TRUE(asked.WaitForNotificationWithTimeout(absl::Minutes(1)));
  EXPECT_FALSE(went.WaitForNotificationWithTimeout(absl::Milliseconds(50)));
  last.SetIn(absl::Milliseconds(10), [] { return true; });
  EXPECT_TRUE(went.WaitForNotificationWithTimeout(absl::Minutes(1)));
}

TEST(LastMomentTest, SeveralThreadsMaySetIt) {
  std::atomic<int> went = 0;
  {
    LastMoment last([&] { ++went; });
    std::atomic<int> asked = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back(
          [&] { last.SetIn(absl::Milliseconds(10), [&] { return ++asked == 8; }); });
    }
    for (std::thread& thread : threads) thread.join();
    const absl::Time end = absl::Now() + absl::Minutes(1);
    while (went == 0 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(went, 1) << "each of them was asked";
}

}  // namespace
}  // namespace parley
