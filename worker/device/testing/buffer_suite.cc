// A network's buffers over FakeDevice: as step_suite.cc, with the real path or a broken one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "worker/device/buffer_path.h"
#include "worker/device/fake_device.h"

namespace parley {
namespace {

using ::testing::IsEmpty;

constexpr size_t kCount = 5;

// Two buffers of floats and one counter, which forward adds to.
class Buffers : public ::testing::Test {
 protected:
  void SetUp() override {
    for (DeviceBuffer* const mean : {&first_, &second_}) {
      *mean = *device_.Allocate("mean", kCount * sizeof(float));
      std::fill(Floats(*mean), Floats(*mean) + kCount, 0.0F);
    }
    counter_ = *device_.Allocate("counter", sizeof(int64_t));
    *Counter() = 0;
    path_ = *BufferPath::Make(device_, 2 * kCount * sizeof(float) + sizeof(int64_t), 3);
    places_ = {{first_.data(), first_.size(), true},
               {counter_.data(), counter_.size(), false},
               {second_.data(), second_.size(), true}};
  }

  static float* Floats(const DeviceBuffer& buffer) {
    return reinterpret_cast<float*>(buffer.data());
  }
  int64_t* Counter() const { return reinterpret_cast<int64_t*>(counter_.data()); }
  static absl::Time Soon() { return absl::Now() + absl::Seconds(10); }

  void Forward() {
    ASSERT_TRUE(device_
                    .Compute(StreamId::kCompute, "forward", {},
                             {{first_.data(), first_.size()},
                              {second_.data(), second_.size()},
                              {counter_.data(), counter_.size()}},
                             [this] {
                               for (size_t i = 0; i < kCount; ++i) Floats(first_)[i] += 1;
                               for (size_t i = 0; i < kCount; ++i) Floats(second_)[i] += 2;
                               ++*Counter();
                             })
                    .ok());
  }

  // What has come: the last value of each.
  std::vector<double> Received() {
    std::vector<double> values(3);
    const absl::Status status =
        path_->Receive(Soon(), [&](size_t place, absl::Span<const std::byte> bytes) {
          if (place == 1) {
            int64_t counter = 0;
            std::memcpy(&counter, bytes.data(), sizeof counter);
            values[1] = static_cast<double>(counter);
          } else {
            float last = 0;
            std::memcpy(&last, bytes.data() + (kCount - 1) * sizeof last, sizeof last);
            values[place] = static_cast<double>(last);
          }
        });
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }

  FakeDevice device_;
  DeviceBuffer first_, second_, counter_;
  std::unique_ptr<BufferPath> path_;
  std::vector<BufferPath::Place> places_;
};

TEST_F(Buffers, ComeToTheHostAsForwardHasLeftThem) {
  for (int step = 1; step <= 3; ++step) {
    Forward();
    ASSERT_TRUE(path_->Fetch(places_).ok());
    EXPECT_EQ(Received(), std::vector<double>({1.0 * step, 1.0 * step, 2.0 * step}));
  }
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(Buffers, ComeToTheDeviceBetweenTwoForwards) {
  for (int step = 1; step <= 3; ++step) {
    Forward();
    // All but the last one.
    const absl::Span<const BufferPath::Place> some = absl::MakeConstSpan(places_).first(2);
    const absl::Status status =
        path_->Bring(some, Soon(), [&](size_t place, absl::Span<std::byte> bytes) {
          const int64_t counter = 100 * step;
          const std::vector<float> floats(kCount, 10.0F * static_cast<float>(step));
          std::memcpy(bytes.data(), place == 1 ? static_cast<const void*>(&counter) : floats.data(),
                      bytes.size());
        });
    ASSERT_TRUE(status.ok()) << status;
    Forward();
    ASSERT_TRUE(path_->Fetch(places_).ok());
    EXPECT_EQ(Received(), std::vector<double>({10.0 * step + 1, 100.0 * step + 1, 4.0 * step}));
  }
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(Buffers, AreReceivedOnceForEachFetch) {
  Forward();
  ASSERT_TRUE(path_->Fetch(places_).ok());
  EXPECT_EQ(path_->Fetch(places_).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Received(), std::vector<double>({1, 1, 2}));
  EXPECT_FALSE(path_->Receive(Soon(), [](size_t, absl::Span<const std::byte>) {}).ok());
  ASSERT_TRUE(path_->Fetch(places_).ok());
  path_.reset();
  EXPECT_THAT(device_.violations(), IsEmpty());
}

}  // namespace
}  // namespace parley
