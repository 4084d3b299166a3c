#include "worker/device/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/clock/steady_now.h"
#include "worker/device/fake_device.h"

namespace parley {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StagingTest : public ::testing::Test {
 protected:
  void Copy(size_t block) {
    ASSERT_TRUE(
        device_.CopyToDevice(StreamId::kToDevice, memory_.data(), staging_.block(block), 64).ok());
    ASSERT_TRUE(staging_.ReleaseAfter(block, StreamId::kToDevice).ok());
  }

  FakeDevice device_;
  const DeviceBuffer memory_ = *device_.Allocate("memory", 64);
  Staging staging_{device_, "buckets", 64, 2};
};

TEST_F(StagingTest, ABlockThatTheHostGaveBackIsUsedAgain) {
  const size_t block = *staging_.Take(SteadyNow());
  staging_.Release(block);
  EXPECT_EQ(*staging_.Take(SteadyNow()), block);
  EXPECT_EQ(staging_.blocks(), 1);
}

TEST_F(StagingTest, ABlockOfACopyIsUsedAgainOnlyAfterIt) {
  for (int turn = 0; turn < 5; ++turn) {
    const size_t block = *staging_.Take(SteadyNow());
    device_.HostWrites(staging_.block(block), 64);
    Copy(block);
  }
  EXPECT_EQ(staging_.blocks(), 2);
  EXPECT_EQ(device_.awaits(), 3);
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(StagingTest, ACopyThatDoesNotEndEndsTheWaitAndKeepsItsBlock) {
  Copy(*staging_.Take(SteadyNow()));
  Copy(*staging_.Take(SteadyNow()));
  device_.Stall(StreamId::kToDevice);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(staging_.Take(SteadyNow()).status().code(), absl::StatusCode::kDeadlineExceeded);
  }
}

TEST_F(StagingTest, WhereTheHostHasAllBlocksItIsToldSo) {
  ASSERT_TRUE(staging_.Take(SteadyNow()).ok());
  ASSERT_TRUE(staging_.Take(SteadyNow()).ok());
  EXPECT_EQ(staging_.Take(SteadyNow()).status().code(), absl::StatusCode::kUnavailable);
}

TEST(StagingOfASmallDevice, NoRoomNamesWhatForAndHowMuch) {
  FakeDevice device({.memory_bytes = 100});
  Staging staging(device, "buckets of gradients", 64, 2);
  ASSERT_TRUE(staging.Take(SteadyNow()).ok());
  const absl::Status status = staging.Take(SteadyNow()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("buckets of gradients: no room for 64 bytes"));
}

}  // namespace
}  // namespace parley
