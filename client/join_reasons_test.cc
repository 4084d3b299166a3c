#include "client/join_reasons.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

// How often each second of that time is news.
int Lines(JoinReasons& reasons, const std::string& reason, absl::Time from, absl::Duration time) {
  int lines = 0;
  for (absl::Time now = from; now < from + time; now += absl::Seconds(1)) {
    lines += reasons.IsNews(reason, now) ? 1 : 0;
  }
  return lines;
}

TEST(JoinReasonsTest, TheSameIsToldAtOnceAndEveryTenMinutes) {
  JoinReasons reasons;
  EXPECT_TRUE(reasons.IsNews("refused", kStart));
  EXPECT_EQ(Lines(reasons, "refused", kStart + absl::Seconds(1), absl::Seconds(599)), 0);
  EXPECT_TRUE(reasons.IsNews("refused", kStart + absl::Minutes(10)));
  EXPECT_EQ(Lines(reasons, "refused", kStart + absl::Minutes(11), absl::Hours(1)), 6);
}

TEST(JoinReasonsTest, AnotherOneIsToldAtOnce) {
  JoinReasons reasons;
  EXPECT_TRUE(reasons.IsNews("refused", kStart));
  EXPECT_TRUE(reasons.IsNews("all places are taken", kStart + absl::Seconds(1)));
  EXPECT_FALSE(reasons.IsNews("refused", kStart + absl::Seconds(2))) << "they take turns";
  EXPECT_TRUE(reasons.IsNews("refused", kStart + absl::Minutes(10)));
  EXPECT_FALSE(reasons.IsNews("all places are taken", kStart + absl::Minutes(10)));
}

TEST(JoinReasonsTest, ThoseThatAreNewEachTimeFillNoDisk) {
  JoinReasons reasons;
  int lines = 0;
  for (int second = 0; second < 600; ++second) {
    lines += reasons.IsNews(absl::StrCat("after ", second), kStart + absl::Seconds(second)) ? 1 : 0;
  }
  EXPECT_EQ(lines, 20);
  EXPECT_TRUE(reasons.IsNews("another", kStart + absl::Minutes(10)));
}

}  // namespace
}  // namespace parley
