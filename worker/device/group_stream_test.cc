#include "worker/device/group_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "worker/device/fake_device.h"

namespace parley {
namespace {

// Its looks hang until it is aborted, as those of a driver do that another thread has locked.
class HangingGroup final : public DeviceGroup {
 public:
  absl::Status Reduce(std::byte*, absl::Span<const Part>, BucketType, absl::Time) override {
    return absl::OkStatus();
  }
  absl::Status Broadcast(std::byte*, absl::Span<const Part>, BucketType, absl::Time) override {
    return absl::OkStatus();
  }
  absl::Status ReduceScatter(const std::byte*, std::byte*, uint64_t, BucketType,
                             absl::Time) override {
    return absl::OkStatus();
  }
  absl::Status AllGather(const std::byte*, std::byte*, uint64_t, BucketType, absl::Time) override {
    return absl::OkStatus();
  }
  absl::Status Await(const std::function<absl::StatusOr<bool>()>&, absl::Time) override {
    aborted_.WaitForNotification();
    return absl::CancelledError("aborted");
  }
  void Abort() override {
    if (!said_.exchange(true)) aborted_.Notify();
  }

 private:
  std::atomic<bool> said_ = false;
  absl::Notification aborted_;
};

class GroupStreamTest : public ::testing::Test {
 protected:
  void Form() {
    GroupStream::Group group;
    group.join = [](const std::function<bool()>&) {
      return absl::StatusOr<std::unique_ptr<DeviceGroup>>(std::make_unique<HangingGroup>());
    };
    group.wake = [] {};
    group.stands = [this] { return stands_.load(); };
    ASSERT_TRUE(stream_.Form(std::move(group)).ok());
  }
  // Given, and launched.
  void Give() {
    const uint64_t work = stream_.Give(
        {[this](DeviceGroup&) { return device_.Record(*end_, StreamId::kCommunication); },
         end_.get(), nullptr});
    Until([&] { return stream_.IsLaunched(work); });
  }
  static void Until(const std::function<bool()>& done) {
    const absl::Time deadline = SteadyNow() + absl::Seconds(20);
    while (!done() && SteadyNow() < deadline) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_TRUE(done());
  }

  FakeDevice device_;
  const std::unique_ptr<DeviceEvent> end_ = *device_.MakeEvent();
  std::atomic<bool> stands_ = true;
  GroupStream stream_{device_, absl::Milliseconds(50)};
};

TEST_F(GroupStreamTest, AGroupThatStandsNoMoreIsAbortedWhereverItHangs) {
  Form();
  Give();
  EXPECT_TRUE(stream_.error().ok());
  stands_ = false;
  Until([&] { return absl::IsCancelled(stream_.error()); });
  // Another one is formed as if nothing had been.
  stands_ = true;
  Form();
  EXPECT_TRUE(stream_.error().ok());
  EXPECT_FALSE(stream_.IsLaunched(1));
  Give();
  stands_ = false;
  Until([&] { return absl::IsCancelled(stream_.error()); });
}

TEST_F(GroupStreamTest, ADeviceThatDoesNotComeToAnEndIsSaid) {
  Form();
  Give();
  ASSERT_TRUE(device_.Compute(StreamId::kToHost, "copying", {}, {}, [] {}).ok());
  device_.Stall(StreamId::kToHost);
  const absl::Status status = stream_.Abort();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  device_.Resume(StreamId::kToHost);
}

TEST_F(GroupStreamTest, AFaultOfTheDeviceIsSaidWhenAGroupIsLeft) {
  Form();
  device_.Break();
  EXPECT_EQ(stream_.Abort().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace parley
