#include "common/clock/clock_watch.h"

#include <vector>

#include "gtest/gtest.h"

namespace parley {
namespace {

class ClockWatchTest : public testing::Test {
 protected:
  absl::Duration offset_ = absl::Seconds(1000);
  ClockWatch watch_{[this] { return offset_; }};
  absl::Mutex mu_;
};

TEST_F(ClockWatchTest, NobodyIsWokenWhileTheClockIsNotSet) {
  absl::MutexLock lock(&mu_);
  ClockWatch::Sleeper sleeper(watch_, mu_);
  offset_ += absl::Milliseconds(1);
  EXPECT_FALSE(watch_.Look());
  EXPECT_FALSE(sleeper.woken());
}

TEST_F(ClockWatchTest, WhoSleepsIsWokenForwardAndBackUntilHeSleepsAgain) {
  for (const absl::Duration step : {absl::Hours(1), -absl::Hours(2)}) {
    absl::MutexLock lock(&mu_);
    ClockWatch::Sleeper sleeper(watch_, mu_);
    offset_ += step;
    EXPECT_TRUE(watch_.Look()) << "its mutex is held: it is not known to have woken";
    EXPECT_TRUE(sleeper.woken());
    EXPECT_TRUE(watch_.Look());
    sleeper.BeginSleep();
    EXPECT_FALSE(sleeper.woken());
    EXPECT_FALSE(watch_.Look());
    EXPECT_FALSE(sleeper.woken());
  }
}

TEST_F(ClockWatchTest, SmallStepsAddUp) {
  absl::MutexLock lock(&mu_);
  ClockWatch::Sleeper sleeper(watch_, mu_);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(sleeper.woken());
    offset_ += absl::Milliseconds(4);
    (void)watch_.Look();
  }
  EXPECT_TRUE(sleeper.woken());
}

TEST_F(ClockWatchTest, WhoBeganByAClockThatWasSetBackBetweenTwoLooksIsWoken) {
  (void)watch_.Look();
  absl::MutexLock lock(&mu_);
  ClockWatch::Sleeper sleeper(watch_, mu_);
  offset_ += absl::Hours(1);
  sleeper.BeginSleep();
  offset_ -= absl::Hours(1);
  EXPECT_TRUE(watch_.Look());
  EXPECT_TRUE(sleeper.woken());
}

TEST_F(ClockWatchTest, WhoHasGoneIsNotWoken) {
  {
    absl::MutexLock lock(&mu_);
    const ClockWatch::Sleeper sleeper(watch_, mu_);
  }
  offset_ += absl::Hours(1);
  EXPECT_FALSE(watch_.Look());
}

TEST_F(ClockWatchTest, ListenersHearOfEachSettingOnceWhileTheyAreThere) {
  std::vector<absl::Duration> heard;
  {
    const ClockWatch::Listener listener(watch_, [&](absl::Duration by) { heard.push_back(by); });
    (void)watch_.Look();
    for (const absl::Duration by : {absl::Hours(1), -absl::Hours(3)}) {
      offset_ += by;
      (void)watch_.Look();
      (void)watch_.Look();
    }
  }
  offset_ += absl::Hours(1);
  (void)watch_.Look();
  EXPECT_EQ(heard, (std::vector{absl::Hours(1), -absl::Hours(3)}));
}

}  // namespace
}  // namespace parley
