#include "client/answer_queue.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <utility>

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

// Has one answer after so many visits, and none after that.
class OneAnswer final : public Visitors {
 public:
  explicit OneAnswer(int after) : after_(after) {}
  bool Visit() override {
    visits_ += 1;
    if (visits_ != after_) return false;
    answer_();
    return true;
  }
  void Leave() override { left_ += 1; }

  void set_answer(std::function<void()> answer) { answer_ = std::move(answer); }
  int visits() const { return visits_; }
  int left() const { return left_; }

 private:
  const int after_;
  std::function<void()> answer_;
  int visits_ = 0;
  int left_ = 0;
};

TEST(AnswerQueue, WhoWaitsLooksWhereAnswersComeInUntilThereIsOne) {
  OneAnswer visited(3);
  AnswerQueue queue(RealRuntime(), &visited);
  bool answered = false;
  visited.set_answer([&] { queue.Post([&] { answered = true; }); });
  EXPECT_TRUE(
      queue.RunUntil([&] { return answered; }, absl::InfiniteFuture(), kNothing, absl::Seconds(1))
          .ok());
  // With an answer at hand it looks no further.
  EXPECT_EQ(visited.visits(), 3);
}

TEST(AnswerQueue, BeforeItSleepsItSaysThatItLooksNoMore) {
  OneAnswer visited(1'000'000'000);
  AnswerQueue queue(RealRuntime(), &visited);
  int slept = 0;
  const auto end_after_two = [&] {
    if (++slept == 2) queue.End(absl::AbortedError("the end"));
  };
  const absl::Status status = queue.RunUntil([] { return false; }, absl::InfiniteFuture(),
                                             end_after_two, absl::Milliseconds(2));
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(visited.left(), 2);
}

}  // namespace
}  // namespace parley
