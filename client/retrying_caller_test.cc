#include "client/retrying_caller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/manual_timers.h"

namespace parley {
namespace {

struct Outcome {
  std::optional<absl::StatusOr<int>> reply;
  int attempts = 0;
  absl::Duration took;
};

// A call whose attempts are answered with these codes in turn, the last one for ever.
Outcome CallAnswered(std::vector<absl::StatusCode> codes, std::function<bool()> go_on = nullptr) {
  auto shared = std::make_shared<ManualTimers>();
  ManualTimers& timers = *shared;
  RetryingCaller caller(shared, 3);
  RetryOptions options;
  options.what = "push to shard 1 at h:10";
  options.deadline = timers.Now() + absl::Minutes(1);
  options.attempt_timeout = absl::Seconds(2);
  options.refresh_timeout = absl::Seconds(10);
  options.go_on = std::move(go_on);
  Outcome outcome;
  const absl::Time start = timers.Now();
  caller.Call<int>(
      options,
      [&](absl::Time deadline, Done<int> done) {
        if (!options.go_on) {
          EXPECT_EQ(deadline, std::min(options.deadline, timers.Now() + absl::Seconds(2)));
        }
        EXPECT_LE(deadline, timers.Now() + absl::Seconds(2));
        EXPECT_GT(deadline, timers.Now());
        const size_t i = std::min<size_t>(outcome.attempts++, codes.size() - 1);
        if (codes[i] == absl::StatusCode::kOk) return done(42);
        done(absl::Status(codes[i], "no luck"));
      },
      [&](absl::StatusOr<int> reply) {
        ASSERT_FALSE(outcome.reply.has_value());
        outcome.reply = std::move(reply);
      });
  while (timers.RunNext()) {
  }
  outcome.took = timers.Now() - start;
  return outcome;
}

using Code = absl::StatusCode;

TEST(RetryingCaller, TriesAgainUntilItSucceeds) {
  const Outcome outcome = CallAnswered(
      {Code::kUnavailable, Code::kDeadlineExceeded, Code::kResourceExhausted, Code::kOk});
  ASSERT_TRUE(outcome.reply.has_value());
  ASSERT_TRUE(outcome.reply->ok()) << outcome.reply->status();
  EXPECT_EQ(**outcome.reply, 42);
  EXPECT_EQ(outcome.attempts, 4);
}

TEST(RetryingCaller, NeverRepeatsWhatIsWrong) {
  for (Code code : {Code::kInvalidArgument, Code::kAborted, Code::kNotFound, Code::kDataLoss}) {
    const Outcome outcome = CallAnswered({code});
    EXPECT_EQ(outcome.attempts, 1);
    EXPECT_EQ(outcome.reply->status().code(), code);
  }
}

TEST(RetryingCaller, SaysAtTheDeadlineWhatFailedAndWhy) {
  const Outcome outcome = CallAnswered({Code::kUnavailable});
  EXPECT_EQ(outcome.reply->status().code(), Code::kDeadlineExceeded);
  const std::string message(outcome.reply->status().message());
  EXPECT_NE(message.find("push to shard 1 at h:10"), std::string::npos) << message;
  EXPECT_NE(message.find("no luck"), std::string::npos) << message;
  EXPECT_LE(outcome.took, absl::Minutes(1));
  EXPECT_GE(outcome.took, absl::Seconds(58));
}

TEST(RetryingCaller, GoesOnWhereSomebodyElseSeesToTheEnd) {
  int asked = 0;
  const Outcome outcome = CallAnswered({Code::kUnavailable}, [&] { return ++asked < 4; });
  EXPECT_EQ(outcome.reply->status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(asked, 4);
  EXPECT_GT(outcome.took, absl::Minutes(3.9));
  EXPECT_LE(outcome.took, absl::Minutes(4));
}

TEST(RetryingCaller, RefreshesAViewForAWhileOnly) {
  EXPECT_TRUE(CallAnswered({Code::kFailedPrecondition, Code::kOk}).reply->ok());
  const Outcome outcome = CallAnswered({Code::kFailedPrecondition});
  EXPECT_EQ(outcome.reply->status().code(), Code::kFailedPrecondition);
  EXPECT_GE(outcome.took, absl::Seconds(10));
  EXPECT_LE(outcome.took, absl::Seconds(12));
}

}  // namespace
}  // namespace parley
