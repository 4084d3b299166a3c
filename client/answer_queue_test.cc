#include "client/answer_queue.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <utility>

#include "common/clock/steady_now.h"

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
                  .RunUntil([&] { return sum == 500500; }, SteadyNow() + absl::Seconds(30),
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
      queue.RunUntil([] { return false; }, SteadyNow() + absl::Milliseconds(20), [&] { ++waited; },
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

// Each look at its clock takes 10 us, and sleeping takes as long as it may.
class SlowClock final : public Runtime {
 public:
  absl::Time Now() const override { return now_ += absl::Microseconds(10); }
  bool Await(absl::Mutex& /*mu*/, const absl::Condition& condition, absl::Time deadline) override {
    if (condition.Eval()) return true;
    now_ = deadline;
    return false;
  }
  std::shared_ptr<Timers> MakeTimers() override { return nullptr; }
  uint64_t DrawIncarnation() override { return 1; }
  int64_t pid() const override { return 1; }

 private:
  mutable absl::Time now_ = absl::UnixEpoch();
};

TEST(AnswerQueue, WhereAnswersCameSoonItLooksForThemLonger) {
  OneAnswer visited(1'000'000'000);
  AnswerQueue queue(std::make_shared<SlowClock>(), &visited);
  // An answer after so many sleeps of so long; how often it looked before the first one.
  const auto visits_until_asleep = [&](int sleeps, absl::Duration each) {
    const int before = visited.visits();
    int asleep = 0;
    int first = 0;
    bool answered = false;
    const auto slept = [&] {
      if (++asleep == 1) first = visited.visits() - before;
      if (asleep == sleeps) queue.Post([&] { answered = true; });
    };
    EXPECT_TRUE(queue.RunUntil([&] { return answered; }, absl::InfiniteFuture(), slept, each).ok());
    return first;
  };
  EXPECT_LE(visits_until_asleep(1, absl::Microseconds(300)), 5);
  EXPECT_GE(visits_until_asleep(3, absl::Milliseconds(5)), 90);
  EXPECT_LE(visits_until_asleep(1, absl::Microseconds(300)), 5);
  // What was there already says nothing.
  EXPECT_TRUE(
      queue.RunUntil([] { return true; }, absl::InfiniteFuture(), kNothing, absl::Seconds(1)).ok());
  EXPECT_GE(visits_until_asleep(3, absl::Milliseconds(5)), 90);
  EXPECT_TRUE(
      queue.RunUntil([] { return true; }, absl::InfiniteFuture(), kNothing, absl::Seconds(1)).ok());
  EXPECT_LE(visits_until_asleep(1, absl::Microseconds(300)), 5);
}

}  // namespace
}  // namespace parley
