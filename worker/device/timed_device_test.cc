#include "worker/device/timed_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "worker/device/fake_device.h"

namespace parley {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class TimedDeviceTest : public ::testing::Test {
 protected:
  explicit TimedDeviceTest(uint32_t every = 1) : every_(every) {}

  static absl::Time At(int64_t milliseconds) {
    return absl::UnixEpoch() + absl::Milliseconds(milliseconds);
  }

  // What "forward" gives the compute stream, and a copy of what it has written.
  void Step() {
    {
      const StreamWork work(&device_, StreamId::kCompute, "forward");
      ASSERT_TRUE(fake_
                      .Compute(StreamId::kCompute, "sleeping", {}, {},
                               [] { absl::SleepFor(absl::Milliseconds(2)); })
                      .ok());
      ASSERT_TRUE(device_.Clear(StreamId::kCompute, memory_.data(), memory_.size()).ok());
    }
    ASSERT_TRUE(device_.Record(*computed_, StreamId::kCompute).ok());
    ASSERT_TRUE(device_.Wait(StreamId::kToHost, *computed_).ok());
    ASSERT_TRUE(
        device_.CopyToHost(StreamId::kToHost, pinned_.data(), memory_.data(), pinned_.size()).ok());
    ASSERT_TRUE(device_.Record(*copied_, StreamId::kToHost).ok());
    ASSERT_TRUE(device_.Await(*copied_, SteadyNow()).ok());
  }

  std::vector<std::string> Told() const {
    std::vector<std::string> told;
    for (const TimedDevice::Work& work : works_) told.push_back(work.what);
    return told;
  }

  const uint32_t every_;
  FakeDevice fake_;
  int steps_ = 0;  // that were told
  std::vector<TimedDevice::Work> works_;
  TimedDevice device_{fake_, {every_, [this](const std::vector<TimedDevice::Work>& works) {
                                ++steps_;
                                works_ = works;
                              }}};
  DeviceBuffer memory_ = *device_.Allocate("test", 4096);
  DeviceBuffer pinned_ = *device_.AllocatePinned("test", 4096);
  std::unique_ptr<DeviceEvent> computed_ = *device_.MakeEvent();
  std::unique_ptr<DeviceEvent> copied_ = *device_.MakeEvent();
};

class OneStepOfThree : public TimedDeviceTest {
 protected:
  OneStepOfThree() : TimedDeviceTest(3) {}
};

TEST_F(TimedDeviceTest, TellsWhenEachStreamDidWhat) {
  const absl::Time began = SteadyNow();
  device_.BeginStep();
  Step();
  EXPECT_THAT(works_, IsEmpty());
  const absl::Time ended = SteadyNow();
  device_.BeginStep();
  ASSERT_THAT(Told(), ElementsAre("forward", "clear", "copy to the host"));
  const TimedDevice::Work& forward = works_[0];
  const TimedDevice::Work& clear = works_[1];
  const TimedDevice::Work& copy = works_[2];
  EXPECT_EQ(forward.stream, StreamId::kCompute);
  EXPECT_EQ(copy.stream, StreamId::kToHost);
  EXPECT_GE(forward.end - forward.begin, absl::Milliseconds(2));
  EXPECT_LE(forward.begin, clear.begin);
  EXPECT_LE(clear.end, forward.end);
  EXPECT_LE(forward.end, copy.begin);
  EXPECT_LE(copy.begin, copy.end);
  // The host looks at its clock after the device has passed an event, at best at once.
  EXPECT_GE(forward.begin, began);
  EXPECT_LE(copy.end, ended + absl::Seconds(1));
  EXPECT_THAT(fake_.violations(), IsEmpty());
}

TEST_F(TimedDeviceTest, TheLastStepIsToldByFlush) {
  device_.BeginStep();
  Step();
  device_.Flush();
  EXPECT_EQ(Told().size(), 3);
  device_.Flush();
  EXPECT_EQ(steps_, 1);
}

TEST_F(OneStepOfThree, IsLookedAtAndItsEventsAreUsedAgain) {
  size_t events = 0;
  for (int step = 1; step <= 12; ++step) {
    device_.BeginStep();
    Step();
    if (step == 7) events = fake_.timed_events();
  }
  device_.Flush();
  EXPECT_EQ(steps_, 4);
  EXPECT_EQ(Told().size(), 3);
  // Of two steps, since one is told when the next one begins; and of looks that were not exact.
  EXPECT_LE(fake_.timed_events(), events + 2);
}

TEST_F(TimedDeviceTest, AStepThatHasNotEndedIsToldLaterAndHoldsNoOtherUp) {
  fake_.Stall(StreamId::kToDevice);
  device_.BeginStep();
  ASSERT_TRUE(device_.CopyToDevice(StreamId::kToDevice, memory_.data(), pinned_.data(), 16).ok());
  device_.BeginStep();
  Step();
  device_.BeginStep();
  EXPECT_EQ(steps_, 0);
  fake_.Resume(StreamId::kToDevice);
  device_.BeginStep();
  EXPECT_EQ(steps_, 2);
  EXPECT_THAT(Told(), ElementsAre("forward", "clear", "copy to the host"));
}

TEST_F(TimedDeviceTest, ADeviceThatDoesNothingAnyMoreIsNotAskedForEver) {
  fake_.Stall(StreamId::kToDevice);
  for (int step = 0; step < 50; ++step) {
    device_.BeginStep();
    ASSERT_TRUE(device_.CopyToDevice(StreamId::kToDevice, memory_.data(), pinned_.data(), 16).ok());
  }
  device_.Flush();
  EXPECT_EQ(steps_, 0);
  EXPECT_LT(fake_.timed_events(), 50);
}

TEST_F(TimedDeviceTest, AStepIsNotLookedAtWhereTheDeviceIsNotIdleSoon) {
  fake_.Stall(StreamId::kToHost);
  device_.BeginStep();
  { const StreamWork work(&device_, StreamId::kCompute, "forward"); }
  device_.Flush();
  fake_.Resume(StreamId::kToHost);
  device_.BeginStep();
  EXPECT_EQ(steps_, 0);
}

TEST_F(TimedDeviceTest, WhatComesAfterAStepIsNoneOfIt) {
  device_.BeginStep();
  Step();
  device_.EndStep();
  Step();
  device_.BeginStep();
  EXPECT_EQ(Told().size(), 3);
}

TEST_F(TimedDeviceTest, WorkThatBeganInAnotherStepEndsNoneOfThisOne) {
  const uint64_t before = device_.BeginWork(StreamId::kCompute, "before");
  device_.BeginStep();
  const uint64_t first = device_.BeginWork(StreamId::kCompute, "first");
  device_.EndWork(before);
  device_.BeginStep();
  EXPECT_EQ(steps_, 0);  // the first has not ended
  device_.EndWork(first);
  device_.BeginStep();
  EXPECT_THAT(Told(), ElementsAre("first"));
  const uint64_t second = device_.BeginWork(StreamId::kCompute, "second");
  device_.EndWork(first);
  device_.EndWork(second);
  device_.Flush();
  EXPECT_THAT(Told(), ElementsAre("second"));
}

TEST_F(TimedDeviceTest, AStreamIsBusyOnceWhereWorksLieWithinEachOther) {
  const auto busy = BusyTimes({{StreamId::kCompute, "backward", At(10), At(20)},
                               {StreamId::kCompute, "pack", At(12), At(14)},
                               {StreamId::kCompute, "forward", At(0), At(5)},
                               {StreamId::kCompute, "late", At(18), At(23)},
                               {StreamId::kToHost, "copy", At(12), At(30)}});
  EXPECT_EQ(busy[static_cast<size_t>(StreamId::kCompute)], absl::Milliseconds(18));
  EXPECT_EQ(busy[static_cast<size_t>(StreamId::kToHost)], absl::Milliseconds(18));
  EXPECT_EQ(busy[static_cast<size_t>(StreamId::kToDevice)], absl::ZeroDuration());
}

}  // namespace
}  // namespace parley
