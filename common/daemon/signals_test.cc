#include "common/daemon/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "absl/synchronization/notification.h"

namespace parley {
namespace {

TEST(TerminationSignals, ReachTheFunctionAndEndWithTheObject) {
  absl::Notification seen;
  int signal = 0;
  TerminationSignals signals([&](int s) {
    signal = s;
    seen.Notify();
  });
  kill(getpid(), SIGTERM);
  ASSERT_TRUE(seen.WaitForNotificationWithTimeout(absl::Seconds(10)));
  EXPECT_EQ(signal, SIGTERM);
}

}  // namespace
}  // namespace parley
