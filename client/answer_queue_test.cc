#include "client/answer_queue.h"

#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"

namespace parley {
namespace {

const auto kNothing = [] {};

TEST(AnswerQueue, RunsAnswersOfOtherThreadsOnTheWaitingOne) {
  AnswerQueue queue(RealRuntime());
  int sum = 0;  // no lock: only this thread touches it
  std::thread other([&] {
    for (int i = 1; i <= 1000; ++i) queue.Post([&sum, i] { sum += i; });
  });
  EXPECT_TRUE(queue
                  .RunUntil([&] { return sum == 500500; }, absl::Now() + absl::Seconds(30),
                            kNothing, absl::Seconds(1))
                  .ok());
  other.join();
}

TEST(AnswerQueue, TheFirstEndWakesAndStays) {
  AnswerQueue queue(RealRuntime());
  std::thread other([&] {
    queue.End(absl::AbortedError("the first cause"));
    queue.End(absl::AbortedError("a later one"));
  });
  const auto never = [] { return false; };
  for (int i = 0; i < 2; ++i) {
    const absl::Status status =
        queue.RunUntil(never, absl::InfiniteFuture(), kNothing, absl::Seconds(1));
    EXPECT_EQ(status.message(), "the first cause");
  }
  other.join();
  bool ran = false;
  queue.Post([&] { ran = true; });
  EXPECT_FALSE(
      queue.RunUntil([&] { return ran; }, absl::InfiniteFuture(), kNothing, absl::Seconds(1)).ok());
  EXPECT_FALSE(ran);
}

TEST(AnswerQueue, EndsAtTheDeadlineAndTellsThatItWaits) {
  AnswerQueue queue(RealRuntime());
  int waited = 0;
  const absl::Status status =
      queue.RunUntil([] { return false; }, absl::Now() + absl::Milliseconds(20), [&] { ++waited; },
                     absl::Milliseconds(2));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_GE(waited, 2);
}

}  // namespace
}  // namespace parley
