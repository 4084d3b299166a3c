#include "common/worker_threads.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"

namespace parley {
namespace {

TEST(WorkerThreadsTest, AsManyTasksRunAtATimeAsThereAreThreads) {
  WorkerThreads threads(3);
  auto* const barrier = new absl::Barrier(3);  // each waits for the other two
  absl::BlockingCounter done(3);
  for (int i = 0; i < 3; ++i) {
    threads.Run([&] {
      if (barrier->Block()) delete barrier;
      done.DecrementCount();
    });
  }
  done.Wait();
}

TEST(WorkerThreadsTest, OneThreadRunsThemInTheirOrder) {
  WorkerThreads threads(1);
  std::vector<int> order;
  absl::Notification done;
  for (int i = 0; i < 100; ++i) threads.Run([&order, i] { order.push_back(i); });
  threads.Run([&] { done.Notify(); });
  done.WaitForNotification();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(WorkerThreadsTest, StopWaitsForWhatRunsAndNothingRunsAfterIt) {
  WorkerThreads threads(1);
  absl::Notification begun;
  absl::Notification go_on;
  bool ended = false;
  threads.Run([&] {
    begun.Notify();
    go_on.WaitForNotification();
    ended = true;
  });
  begun.WaitForNotification();
  std::thread stopping([&] { threads.Stop(); });
  go_on.Notify();
  stopping.join();
  EXPECT_TRUE(ended);
  bool ran = false;
  threads.Run([&] { ran = true; });
  threads.Stop();
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace parley
