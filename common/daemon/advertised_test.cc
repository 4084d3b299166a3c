#include "common/daemon/advertised.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

TEST(AdvertisedAddress, IsWhereTheServerListensUnlessSomethingElseIsSaid) {
  EXPECT_EQ(AdvertisedAddress("", "127.0.0.1:4567").value(), "127.0.0.1:4567");
  EXPECT_EQ(AdvertisedAddress("proxy:80", "127.0.0.1:4567").value(), "proxy:80");
}

TEST(AdvertisedAddress, TakesTheRealPortWhereItSaysPortZero) {
  EXPECT_EQ(AdvertisedAddress("node7:0", "0.0.0.0:4567").value(), "node7:4567");
}

TEST(AdvertisedAddress, RefusesWhatNobodyCouldConnectTo) {
  for (const char* wrong : {"node7", ":80", "node7:", "node7:x", "node7:65536", "node 7:80"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(AdvertisedAddress(wrong, "0.0.0.0:1").status())) << wrong;
  }
}

}  // namespace
}  // namespace parley
