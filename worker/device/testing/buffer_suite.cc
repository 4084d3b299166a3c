// A network's buffers over FakeDevice: as step_suite.cc, with the real path or a broken one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "common/clock/steady_now.h"
#include "worker/device/buffer_path.h"
#include "worker/device/fake_device.h"

namespace parley {
namespace {

using ::testing::IsEmpty;

constexpr size_t kCount = 5;

// Two buffers of floats, a counter and a single byte, which forward adds to.
class Buffers : public ::testing::Test {
 protected:
  void SetUp() override {
    for (DeviceBuffer* const mean : {&first_, &second_}) {
      *mean = *device_.Allocate("mean", kCount * sizeof(float));
      std::fill(Floats(*mean), Floats(*mean) + kCount, 0.0F);
    }
    counter_ = *device_.Allocate("counter", sizeof(int64_t));
    // As float32 it would be a NaN, of which arithmetic keeps no bit but that.
    *Counter() = kBase;
    byte_ = *device_.Allocate("byte", 1);
    *byte_.data() = std::byte{0};
    path_ = *BufferPath::Make(device_, 2 * kCount * sizeof(float) + sizeof(int64_t) + 1, 4);
    places_ = {{first_.data(), first_.size()},
               {counter_.data(), counter_.size()},
               {byte_.data(), byte_.size()},
               {second_.data(), second_.size()}};
  }

  static float* Floats(const DeviceBuffer& buffer) {
    return reinterpret_cast<float*>(buffer.data());
  }
  static constexpr int64_t kBase = 0x7f812345;
  int64_t* Counter() const { return reinterpret_cast<int64_t*>(counter_.data()); }
  static absl::Time Soon() { return SteadyNow() + absl::Seconds(10); }

  void Forward() {
    ASSERT_TRUE(device_
                    .Compute(StreamId::kCompute, "forward", {},
                             {{first_.data(), first_.size()},
                              {second_.data(), second_.size()},
                              {counter_.data(), counter_.size()},
                              {byte_.data(), byte_.size()}},
                             [this] {
                               *byte_.data() = std::byte(std::to_integer<int>(*byte_.data()) + 3);
                               for (size_t i = 0; i < kCount; ++i) Floats(first_)[i] += 1;
                               for (size_t i = 0; i < kCount; ++i) Floats(second_)[i] += 2;
                               ++*Counter();
                             })
                    .ok());
  }

  // What has come: the last value of each.
  std::vector<double> Received() {
    std::vector<double> values(4);
    const absl::Status status =
        path_->Receive(Soon(), [&](size_t place, absl::Span<const std::byte> bytes) {
          if (place == 1) {
            int64_t counter = 0;
            std::memcpy(&counter, bytes.data(), sizeof counter);
            values[1] = static_cast<double>(counter - kBase);
          } else if (place == 2) {
            values[2] = std::to_integer<int>(bytes[0]);
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
  DeviceBuffer first_, second_, counter_, byte_;
  std::unique_ptr<BufferPath> path_;
  std::vector<BufferPath::Place> places_;
};

TEST_F(Buffers, ComeToTheHostAsForwardHasLeftThem) {
  for (int step = 1; step <= 3; ++step) {
    Forward();
    ASSERT_TRUE(path_->Fetch(places_).ok());
    EXPECT_EQ(Received(), std::vector<double>({1.0 * step, 1.0 * step, 3.0 * step, 2.0 * step}));
  }
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(Buffers, ComeToTheDeviceBetweenTwoForwards) {
  for (int step = 1; step <= 3; ++step) {
    Forward();
    // All but the last one.
    const absl::Span<const BufferPath::Place> some = absl::MakeConstSpan(places_).first(3);
    const absl::Status status =
        path_->Bring(some, Soon(), [&](size_t place, absl::Span<std::byte> bytes) {
          const int64_t counter = kBase + 100 * step;
          const std::vector<float> floats(kCount, 10.0F * static_cast<float>(step));
          if (place == 2) {
            bytes[0] = std::byte(7 * step);
          } else if (place == 1) {
            std::memcpy(bytes.data(), &counter, bytes.size());
          } else {
            std::memcpy(bytes.data(), floats.data(), bytes.size());
          }
        });
    ASSERT_TRUE(status.ok()) << status;
    Forward();
    ASSERT_TRUE(path_->Fetch(places_).ok());
    EXPECT_EQ(Received(),
              std::vector<double>({10.0 * step + 1, 100.0 * step + 1, 7.0 * step + 3, 4.0 * step}));
  }
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(Buffers, AreReceivedOnceForEachFetch) {
  Forward();
  ASSERT_TRUE(path_->Fetch(places_).ok());
  EXPECT_EQ(path_->Fetch(places_).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Received(), std::vector<double>({1, 1, 3, 2}));
  EXPECT_FALSE(path_->Receive(Soon(), [](size_t, absl::Span<const std::byte>) {}).ok());
  ASSERT_TRUE(path_->Fetch(places_).ok());
  path_.reset();
  EXPECT_THAT(device_.violations(), IsEmpty());
}

}  // namespace
}  // namespace parley
