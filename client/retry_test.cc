#include "client/retry.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

TEST(Retry, EachCodeHasItsAction) {
  using Code = absl::StatusCode;
  EXPECT_EQ(ActionFor(Code::kOk), RetryAction::kDone);
  for (Code code : {Code::kUnavailable, Code::kDeadlineExceeded}) {
    EXPECT_EQ(ActionFor(code), RetryAction::kRetry);
  }
  EXPECT_EQ(ActionFor(Code::kResourceExhausted), RetryAction::kWait);
  EXPECT_EQ(ActionFor(Code::kFailedPrecondition), RetryAction::kRefresh);
  for (Code code : {Code::kAborted, Code::kInvalidArgument, Code::kPermissionDenied,
                    Code::kUnauthenticated, Code::kNotFound, Code::kDataLoss, Code::kInternal,
                    Code::kUnimplemented, Code::kAlreadyExists, Code::kOutOfRange}) {
    EXPECT_EQ(ActionFor(code), RetryAction::kGiveUp) << static_cast<int>(code);
  }
}

TEST(Backoff, GrowsToItsLimitAndStaysInTheUpperHalf) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    BackoffPolicy policy;
    Backoff backoff(policy, seed);
    absl::Duration most = policy.first;
    for (int i = 0; i < 20; ++i) {
      const absl::Duration wait = backoff.Next();
      EXPECT_GE(wait, most / 2);
      EXPECT_LE(wait, most);
      most = std::min(policy.longest, most * policy.factor);
    }
    EXPECT_EQ(most, policy.longest);
    backoff.Reset();
    EXPECT_LE(backoff.Next(), policy.first);
  }
}

TEST(Backoff, CallersThatFailedTogetherDoNotComeBackTogether) {
  EXPECT_NE(Backoff({}, 1).Next(), Backoff({}, 2).Next());
  EXPECT_EQ(Backoff({}, 7).Next(), Backoff({}, 7).Next());
}

}  // namespace
}  // namespace parley
