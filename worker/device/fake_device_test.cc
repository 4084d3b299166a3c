#include "worker/device/fake_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/clock/steady_now.h"
#include "worker/device/testing/device_contract.h"

namespace parley {

absl::StatusOr<std::unique_ptr<ComputeDevice>> MakeDeviceUnderTest() {
  return std::make_unique<FakeDevice>();
}

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(FakeDevice, WorkThatNobodyAwaitsIsNotDone) {
  FakeDevice device;
  int done = 0;
  ASSERT_TRUE(device.Compute(StreamId::kCompute, "counting", {}, {}, [&] { ++done; }).ok());
  const auto event = *device.MakeEvent();
  ASSERT_TRUE(device.Record(*event, StreamId::kCompute).ok());
  ASSERT_TRUE(device.Compute(StreamId::kCompute, "counting", {}, {}, [&] { ++done; }).ok());
  EXPECT_EQ(done, 0);
  ASSERT_TRUE(device.Await(*event, SteadyNow()).ok());
  EXPECT_EQ(done, 1);
}

TEST(FakeDevice, AStalledStreamEndsAwaitsButNotThoseOfOthers) {
  FakeDevice device;
  device.Stall(StreamId::kToHost);
  const auto event = *device.MakeEvent();
  ASSERT_TRUE(device.Compute(StreamId::kToHost, "copying", {}, {}, [] {}).ok());
  ASSERT_TRUE(device.Record(*event, StreamId::kToHost).ok());
  EXPECT_EQ(device.Await(*event, SteadyNow()).code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(device.Wait(StreamId::kCompute, *event).ok());
  const auto behind = *device.MakeEvent();
  ASSERT_TRUE(device.Record(*behind, StreamId::kCompute).ok());
  EXPECT_EQ(device.Await(*behind, SteadyNow()).code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(device.Record(*event, StreamId::kToDevice).ok());
  EXPECT_TRUE(device.Await(*event, SteadyNow()).ok());
}

TEST(FakeDevice, AnEventThatWasNeverRecordedIsFound) {
  FakeDevice device;
  const auto event = *device.MakeEvent();
  ASSERT_TRUE(device.Wait(StreamId::kCompute, *event).ok());
  EXPECT_THAT(device.violations(), ElementsAre(HasSubstr("never recorded")));
}

}  // namespace
}  // namespace parley
