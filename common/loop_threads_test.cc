#include "common/loop_threads.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/barrier.h"

namespace parley {
namespace {

TEST(LoopThreadsTest, EachIsRunOnceHoweverManyThreadsThereAre) {
  for (const size_t helpers : {0, 1, 3}) {
    LoopThreads threads(helpers);
    for (size_t count = 0; count < 200; ++count) {
      std::vector<int> times(count, 0);  // no atomics: each belongs to one thread
      threads.Run(count, [&](size_t i) { ++times[i]; });
      for (const int each : times) ASSERT_EQ(each, 1);
    }
  }
}

TEST(LoopThreadsTest, TheyWorkAtTheSameTime) {
  LoopThreads threads(2);
  // Each waits for the two others.
  auto* const barrier = new absl::Barrier(3);
  threads.Run(3, [&](size_t) {
    if (barrier->Block()) delete barrier;
  });
}

TEST(LoopThreadsTest, ThoseThatWouldTakeAllCoresKeepOffTheCallersOne) {
  cpu_set_t cores;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(cores), &cores), 0);
  const auto count = static_cast<size_t>(CPU_COUNT(&cores));
  if (count < 2) GTEST_SKIP() << "this machine has one core";
  LoopThreads threads(count - 1);
  int tried = 0;
  for (size_t core = 0; core < CPU_SETSIZE && tried < 4; ++core) {
    if (!CPU_ISSET(core, &cores)) continue;
    ++tried;
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(core, &here);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(here), &here), 0);
    const std::thread::id caller = std::this_thread::get_id();
    auto* const barrier = new absl::Barrier(2);
    threads.Run(2, [&](size_t) {
      if (std::this_thread::get_id() != caller) {
        cpu_set_t others = {};
        EXPECT_EQ(::sched_getaffinity(0, sizeof(others), &others), 0);
        EXPECT_FALSE(CPU_ISSET(core, &others)) << "core " << core;
        EXPECT_EQ(CPU_COUNT(&others), static_cast<int>(count) - 1);
      }
      if (barrier->Block()) delete barrier;
    });
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof(cores), &cores), 0);
}

TEST(LoopThreadsTest, LoopsOfManyCallersAllRun) {
  LoopThreads threads(2);
  std::atomic<int> sum = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        int own = 0;
        std::vector<int> values(10, 0);
        threads.Run(10, [&](size_t i) { values[i] = static_cast<int>(i); });
        for (const int value : values) own += value;
        sum += own;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 200 * 45);
}

}  // namespace
}  // namespace parley
