// The streams of whole steps over FakeDevice: linked with the real paths by step_streams_test, and
// with broken ones by the tests of bugs/.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "worker/device/fake_device.h"
#include "worker/device/gradient_path.h"
#include "worker/device/parameter_path.h"

namespace parley {
namespace {

using ::testing::IsEmpty;

constexpr size_t kBuckets = 6;
constexpr size_t kCount = 100;
constexpr size_t kBytes = kCount * sizeof(float);

// A model of six tensors, a bucket each. Forward adds them to a sum; the gradient of tensor i in
// step s is s + i everywhere; the service adds twice the gradient to the parameter.
class Steps : public ::testing::Test {
 protected:
  void SetUp() override {
    GradientPath::Options out;
    out.bucket_bytes = kBytes;
    out.packed = 2;
    out.most_pinned = kBuckets;
    gradients_out_ = *GradientPath::Make(device_, out);
    ParameterPath::Options in;
    in.bucket_bytes = kBytes;
    in.landing = 2;
    in.most_pinned = 3;
    parameters_in_ = *ParameterPath::Make(device_, in);
    for (size_t i = 0; i < kBuckets; ++i) {
      parameters_.push_back(*device_.Allocate("parameter", kBytes));
      gradients_.push_back(*device_.Allocate("gradient", kBytes));
    }
    sum_ = *device_.Allocate("sum", sizeof(float));
    service_.assign(kBuckets, std::vector<float>(kCount, 0.0f));
  }

  static float* Floats(const DeviceBuffer& buffer) {
    return reinterpret_cast<float*>(buffer.data());
  }
  static Range All(const DeviceBuffer& buffer) { return {buffer.data(), buffer.size()}; }
  static absl::Time Soon() { return absl::Now() + absl::Seconds(10); }

  void PullAll() {
    for (size_t i = 0; i < kBuckets; ++i) {
      const Piece piece = {Floats(parameters_[i]), 0, kCount};
      const absl::Status status = parameters_in_->Bring(
          {piece}, BucketType::kFloat32, kBytes, Soon(), [&](absl::Span<std::byte> values) {
            std::memcpy(values.data(), service_[i].data(), kBytes);
            return absl::OkStatus();
          });
      ASSERT_TRUE(status.ok()) << status;
    }
  }

  void Forward() {
    float* const sum = Floats(sum_);
    ASSERT_TRUE(
        device_.Compute(StreamId::kCompute, "forgetting", {}, {All(sum_)}, [=] { *sum = 0; }).ok());
    for (const DeviceBuffer& parameter : parameters_) {
      const float* const values = Floats(parameter);
      ASSERT_TRUE(device_
                      .Compute(StreamId::kCompute, "forward", {All(parameter)}, {All(sum_)},
                               [=] { *sum += values[kCount - 1]; })
                      .ok());
    }
  }

  void BackwardAndSend(int step) {
    for (size_t i = kBuckets; i-- > 0;) {
      float* const values = Floats(gradients_[i]);
      const float gradient = static_cast<float>(step) + static_cast<float>(i);
      ASSERT_TRUE(device_
                      .Compute(StreamId::kCompute, "backward", {All(parameters_[i])},
                               {All(gradients_[i])},
                               [=] { std::fill(values, values + kCount, gradient); })
                      .ok());
      const Piece piece = {values, 0, kCount};
      const absl::Status status =
          gradients_out_->Send(i, {piece}, 2.0f, BucketType::kFloat32, kBytes, Soon());
      ASSERT_TRUE(status.ok()) << status;
    }
  }

  void DeliverAll() {
    std::vector<size_t> came;
    while (true) {
      const auto more =
          gradients_out_->Deliver(Soon(), [&](size_t bucket, absl::Span<const std::byte> values) {
            came.push_back(bucket);
            EXPECT_EQ(values.size(), kBytes);
            std::vector<float> got(kCount);
            std::memcpy(got.data(), values.data(), kBytes);
            for (size_t i = 0; i < kCount; ++i) service_[bucket][i] += got[i];
            return absl::OkStatus();
          });
      ASSERT_TRUE(more.ok()) << more.status();
      if (!*more) break;
    }
    EXPECT_THAT(came, ::testing::ElementsAre(5, 4, 3, 2, 1, 0));
  }

  FakeDevice device_;
  std::vector<DeviceBuffer> parameters_;
  std::vector<DeviceBuffer> gradients_;
  DeviceBuffer sum_;
  std::unique_ptr<GradientPath> gradients_out_;
  std::unique_ptr<ParameterPath> parameters_in_;
  std::vector<std::vector<float>> service_;
};

TEST_F(Steps, EveryUseOfMemoryIsInAnOrderAndTheValuesAreRight) {
  for (int step = 1; step <= 5; ++step) {
    PullAll();
    Forward();
    BackwardAndSend(step);
    DeliverAll();
  }
  EXPECT_THAT(device_.violations(), IsEmpty());
  for (size_t i = 0; i < kBuckets; ++i) {
    // 2 * (1 + 2 + 3 + 4 + 5) and five times twice its number.
    EXPECT_EQ(service_[i], std::vector<float>(kCount, 30.0f + 10.0f * static_cast<float>(i)));
  }
}

TEST_F(Steps, ForwardHasTheNewestParameters) {
  const auto event = *device_.MakeEvent();
  for (int step = 1; step <= 4; ++step) {
    for (auto& values : service_) values.assign(kCount, static_cast<float>(step));
    PullAll();
    Forward();
    ASSERT_TRUE(device_.Record(*event, StreamId::kCompute).ok());
    ASSERT_TRUE(device_.Await(*event, Soon()).ok());
    EXPECT_EQ(*Floats(sum_), static_cast<float>(step * kBuckets));
  }
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(Steps, PullsOfSeveralVersionsWithoutAWaitBetweenThemAreInOrder) {
  for (int step = 1; step <= 3; ++step) {
    PullAll();
    Forward();
  }
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(Steps, BackwardWaitsForNoCopyAndASteadyStepAllocatesNothing) {
  PullAll();
  Forward();
  BackwardAndSend(1);
  DeliverAll();
  const size_t allocations = device_.allocations();
  for (int step = 2; step <= 4; ++step) {
    PullAll();
    Forward();
    const size_t awaits = device_.awaits();
    BackwardAndSend(step);
    EXPECT_EQ(device_.awaits(), awaits);
    DeliverAll();
    EXPECT_EQ(device_.awaits(), awaits + kBuckets) << "one for each bucket, none for the device";
  }
  EXPECT_EQ(device_.allocations(), allocations);
}

TEST_F(Steps, ACopyThatDoesNotEndEndsTheWaitForIt) {
  BackwardAndSend(1);
  device_.Stall(StreamId::kToHost);
  const auto more = gradients_out_->Deliver(
      Soon(), [&](size_t, absl::Span<const std::byte>) { return absl::OkStatus(); });
  EXPECT_EQ(more.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(Steps, ABucketThatIsTooLargeIsRefused) {
  const Piece piece = {Floats(gradients_[0]), 0, kCount};
  EXPECT_EQ(gradients_out_->Send(0, {piece}, 1, BucketType::kFloat32, kBytes + 1, Soon()).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace parley
