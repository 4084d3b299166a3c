#include "worker/device/gradient_delivery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "common/clock/steady_now.h"
#include "worker/device/fake_device.h"

namespace parley {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr size_t kCount = 10;
constexpr size_t kBytes = kCount * sizeof(float);

class GradientDeliveryTest : public ::testing::Test {
 protected:
  GradientDeliveryTest()
      : path_(*GradientPath::Make(device_, {kBytes, 2, 4})),
        gradient_(*device_.Allocate("gradient", kBytes)),
        delivery_(*path_, absl::Seconds(10), [this](size_t bucket, auto values) {
          EXPECT_EQ(values.size(), kBytes);
          absl::MutexLock lock(&mu_);
          pushed_.push_back(bucket);
          return bucket == refused_ ? absl::AbortedError("fenced") : absl::OkStatus();
        }) {}

  void Send(size_t bucket) {
    const Piece piece = {reinterpret_cast<float*>(gradient_.data()), 0, kCount};
    const absl::Status status = path_->Send(bucket, {piece}, 1, BucketType::kFloat32, kBytes,
                                            SteadyNow() + absl::Seconds(10));
    ASSERT_TRUE(status.ok()) << status;
    delivery_.Sent();
  }
  std::vector<size_t> Pushed() {
    absl::MutexLock lock(&mu_);
    return pushed_;
  }

  FakeDevice device_;
  std::unique_ptr<GradientPath> path_;
  DeviceBuffer gradient_;
  absl::Mutex mu_;
  std::vector<size_t> pushed_ ABSL_GUARDED_BY(mu_);
  std::atomic<size_t> refused_ = 100;
  GradientDelivery delivery_;
};

TEST_F(GradientDeliveryTest, AllThatIsSentIsPushedInOrderStepAfterStep) {
  EXPECT_TRUE(delivery_.AwaitAll().ok()) << "nothing was sent";
  for (int step = 0; step < 3; ++step) {
    for (const size_t bucket : {2, 0, 1}) Send(bucket);
    EXPECT_TRUE(delivery_.AwaitAll().ok());
  }
  EXPECT_THAT(Pushed(), ElementsAre(2, 0, 1, 2, 0, 1, 2, 0, 1));
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(GradientDeliveryTest, AfterAnErrorNothingIsPushed) {
  refused_ = 1;
  for (const size_t bucket : {0, 1, 2}) Send(bucket);
  EXPECT_EQ(delivery_.AwaitAll(), absl::AbortedError("fenced"));
  Send(3);
  EXPECT_EQ(delivery_.AwaitAll(), absl::AbortedError("fenced"));
  EXPECT_THAT(Pushed(), ElementsAre(0, 1));
}

TEST_F(GradientDeliveryTest, ADeviceThatHangsEndsTheWait) {
  device_.Stall(StreamId::kToHost);
  Send(0);
  EXPECT_EQ(delivery_.AwaitAll().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Pushed(), IsEmpty());
}

TEST_F(GradientDeliveryTest, EndsWithWhatIsOnItsWay) { Send(0); }

}  // namespace
}  // namespace parley
