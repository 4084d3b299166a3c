#include "common/rpc/recent_visitors.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(RecentVisitorsTest, WhoCameOfLateIsNamed) {
  RecentVisitors visitors(absl::Seconds(10));
  EXPECT_EQ(visitors.Who(kStart), "");
  visitors.Came("10.0.0.1:7000", kStart);
  EXPECT_EQ(visitors.Who(kStart + absl::Seconds(10)), "10.0.0.1:7000");
  EXPECT_EQ(visitors.Who(kStart + absl::Seconds(11)), "");
  visitors.Came("10.0.0.2:7000", kStart + absl::Seconds(5));
  EXPECT_EQ(visitors.Who(kStart + absl::Seconds(6)), "one of 10.0.0.2:7000, 10.0.0.1:7000");
  EXPECT_EQ(visitors.Who(kStart + absl::Seconds(12)), "10.0.0.2:7000");
}

TEST(RecentVisitorsTest, OfACrowdTheLastOnesAreNamed) {
  RecentVisitors visitors(absl::Seconds(10));
  for (int i = 0; i < 1000; ++i) visitors.Came(absl::StrCat("h:", i), kStart);
  EXPECT_EQ(visitors.Who(kStart), "one of h:999, h:998, h:997, h:996 and 252 others");
}

}  // namespace
}  // namespace parley
