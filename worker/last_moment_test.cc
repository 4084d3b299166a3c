#include "worker/last_moment.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

TEST(LastMomentTest, WhoIsStillThereGoesThen) {
  absl::Notification went;
  LastMoment last([&] { went.Notify(); });
  last.SetIn(absl::Milliseconds(10));
  EXPECT_TRUE(went.WaitForNotificationWithTimeout(absl::Minutes(1)));
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

}  // namespace
}  // namespace parley
