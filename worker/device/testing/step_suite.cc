// The streams of whole steps over FakeDevice: linked with the real paths by step_streams_test, and
// with broken ones by the tests of bugs/.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "common/clock/steady_now.h"
#include "worker/device/fake_device.h"
#include "worker/device/gradient_path.h"
#include "worker/device/parameter_path.h"
#include "worker/device/sample_path.h"

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
  static absl::Time Soon() { return SteadyNow() + absl::Seconds(10); }

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

TEST_F(Steps, WhatIsSentDirectlyIsInTheHostsOwnMemoryWhenItIsDelivered) {
  std::vector<float> homes(kBuckets * kCount);
  const DeviceBuffer pinned = *device_.Pin(
      "homes", {reinterpret_cast<std::byte*>(homes.data()), homes.size() * sizeof(float)},
      /*read_only=*/false);
  for (int step = 1; step <= 3; ++step) {
    for (size_t i = 0; i < kBuckets; ++i) {
      float* const values = Floats(gradients_[i]);
      const float gradient = static_cast<float>(step) + static_cast<float>(i);
      ASSERT_TRUE(device_
                      .Compute(StreamId::kCompute, "backward", {}, {All(gradients_[i])},
                               [=] { std::fill(values, values + kCount, gradient); })
                      .ok());
      auto* const home = reinterpret_cast<std::byte*>(homes.data() + i * kCount);
      const auto pieces = gradients_out_->SendDirect(i, gradients_[i].data(),
                                                     absl::MakeSpan(home, kBytes), kBytes / 2 - 4);
      ASSERT_TRUE(pieces.ok()) << pieces.status();
      EXPECT_EQ(*pieces, 3);
    }
    // In order, each piece when it is there.
    const std::byte* next = reinterpret_cast<std::byte*>(homes.data());
    const auto look = [&](size_t bucket, absl::Span<const std::byte> values) {
      EXPECT_EQ(values.data(), next);
      next = values.data() + values.size();
      const auto* const floats = reinterpret_cast<const float*>(values.data());
      for (const float value : {floats[0], floats[values.size() / sizeof(float) - 1]}) {
        EXPECT_EQ(value, static_cast<float>(step) + static_cast<float>(bucket));
      }
      return absl::OkStatus();
    };
    while (*gradients_out_->Deliver(Soon(), look)) {
    }
    EXPECT_EQ(next, reinterpret_cast<std::byte*>(homes.data() + homes.size()));
  }
  EXPECT_THAT(device_.violations(), IsEmpty());
}

// As an embedding's: in each step others of its blocks hold something.
TEST_F(Steps, WhatIsNotZeroIsInTheHostsOwnMemoryWhenItIsDelivered) {
  constexpr size_t kBlocks = 6;
  constexpr size_t kValues = kBlocks * kNonzeroBlock - 10;
  std::vector<float> home(kValues, 0.0F);
  std::vector<uint8_t> nonzero(kBlocks, 0);
  const auto bytes = [](auto& values) {
    return absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()),
                          values.size() * sizeof(values[0]));
  };
  const DeviceBuffer pinned = *device_.Pin("home", bytes(home), /*read_only=*/false);
  const DeviceBuffer pinned_bytes = *device_.Pin("nonzero", bytes(nonzero), /*read_only=*/false);
  const DeviceBuffer gradient = *device_.Allocate("gradient", kValues * sizeof(float));
  float* const values = Floats(gradient);
  for (size_t step = 0; step < 5; ++step) {
    const auto fill = [=] {
      std::fill_n(values, kValues, 0.0F);
      for (const size_t at : {step * kNonzeroBlock, kValues - 1}) values[at] = 1;
    };
    ASSERT_TRUE(device_.Compute(StreamId::kCompute, "backward", {}, {All(gradient)}, fill).ok());
    const absl::Status sent =
        gradients_out_->SendNonzero(9, values, bytes(home), absl::MakeSpan(nonzero));
    ASSERT_TRUE(sent.ok()) << sent;
    const auto came =
        gradients_out_->Deliver(Soon(), [&](size_t bucket, absl::Span<const std::byte> delivered) {
          EXPECT_EQ(bucket, 9u);
          EXPECT_EQ(delivered.data(), bytes(home).data());
          EXPECT_EQ(delivered.size(), kValues * sizeof(float));
          for (size_t i = 0; i < kValues; ++i) {
            const bool holds = i == step * kNonzeroBlock || i + 1 == kValues;
            EXPECT_EQ(home[i], holds ? 1 : 0);
          }
          device_.HostReads(bytes(nonzero).data(), kBlocks);
          return absl::OkStatus();
        });
    ASSERT_TRUE(came.ok()) << came.status();
  }
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(Steps, WhatIsBroughtDirectlyComesAfterTheForwardThatUsesTheFormer) {
  const auto event = *device_.MakeEvent();
  std::vector<float> sums(4);
  std::vector<DeviceBuffer> versions;
  for (size_t step = 0; step < sums.size(); ++step) {
    versions.push_back(*device_.AllocatePinned("values", kBuckets * kBytes));
    device_.HostWrites(versions[step].data(), versions[step].size());
    std::fill_n(Floats(versions[step]), kBuckets * kCount, static_cast<float>(step + 1));
    ASSERT_TRUE(parameters_in_->Begin().ok());
    for (size_t i = 0; i < kBuckets; ++i) {
      const absl::Status status = parameters_in_->BringDirect(
          {{parameters_[i].data(), {versions[step].data() + i * kBytes, kBytes}}});
      ASSERT_TRUE(status.ok()) << status;
    }
    Forward();
    const float* const sum = Floats(sum_);
    float* const seen = &sums[step];
    ASSERT_TRUE(
        device_.Compute(StreamId::kCompute, "looking", {All(sum_)}, {}, [=] { *seen = *sum; })
            .ok());
  }
  ASSERT_TRUE(device_.Record(*event, StreamId::kCompute).ok());
  ASSERT_TRUE(device_.Await(*event, Soon()).ok());
  EXPECT_THAT(sums, ::testing::ElementsAre(6, 12, 18, 24));
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

// Each batch is one number, many times, and another part with that number's negative.
class Samples : public ::testing::Test {
 protected:
  void SetUp() override {
    sum_ = *device_.Allocate("sum", sizeof(float));
    *reinterpret_cast<float*>(sum_.data()) = 0;
  }

  absl::StatusOr<std::shared_ptr<SamplePath::Batch>> Bring(float number) {
    const std::vector<float> x(kCount, number);
    const std::vector<float> y(3, -number);
    const absl::Span<const std::byte> parts[] = {
        {reinterpret_cast<const std::byte*>(x.data()), x.size() * sizeof(float)},
        {reinterpret_cast<const std::byte*>(y.data()), y.size() * sizeof(float)}};
    if (path_ == nullptr) path_ = *SamplePath::Make(device_, {SamplePath::RoomFor(parts), 2});
    return path_->Bring(parts, SteadyNow() + absl::Seconds(10));
  }

  // Adds up 3 * x + y.
  void Compute(const SamplePath::Batch& batch) {
    const auto* const x = reinterpret_cast<const float*>(batch.parts()[0]);
    const auto* const y = reinterpret_cast<const float*>(batch.parts()[1]);
    auto* const sum = reinterpret_cast<float*>(sum_.data());
    ASSERT_TRUE(device_
                    .Compute(StreamId::kCompute, "forward and backward",
                             {{batch.parts()[0], kBytes}, {batch.parts()[1], 3 * sizeof(float)}},
                             {{sum_.data(), sizeof(float)}},
                             [=] { *sum += 3 * x[kCount - 1] + y[2]; })
                    .ok());
  }

  float Sum() {
    const auto event = *device_.MakeEvent();
    EXPECT_TRUE(device_.Record(*event, StreamId::kCompute).ok());
    EXPECT_TRUE(device_.Await(*event, SteadyNow() + absl::Seconds(10)).ok());
    return *reinterpret_cast<float*>(sum_.data());
  }

  FakeDevice device_;
  DeviceBuffer sum_;
  std::unique_ptr<SamplePath> path_;
};

TEST_F(Samples, ABatchIsCopiedWhileTheOneBeforeIsComputedWith) {
  for (int i = 1; i <= 7; ++i) {
    const auto batch = Bring(static_cast<float>(i));
    ASSERT_TRUE(batch.ok()) << batch.status();
    Compute(**batch);
  }
  EXPECT_EQ(Sum(), 56);  // 2 * (1 + ... + 7)
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(Samples, PinnedOnesAreCopiedFromWhereTheyAre) {
  DeviceBuffer x = *device_.AllocatePinned("read ahead", kBytes);
  DeviceBuffer y = *device_.AllocatePinned("read ahead", 3 * sizeof(float));
  const absl::Span<const std::byte> parts[] = {{x.data(), x.size()}, {y.data(), y.size()}};
  path_ = *SamplePath::Make(device_, {SamplePath::RoomFor(parts), 2});
  for (int i = 1; i <= 5; ++i) {
    ASSERT_TRUE(path_->AwaitPinned(SteadyNow() + absl::Seconds(10)).ok());
    std::fill_n(reinterpret_cast<float*>(x.data()), kCount, static_cast<float>(i));
    std::fill_n(reinterpret_cast<float*>(y.data()), 3, static_cast<float>(-i));
    const auto batch = path_->BringPinned(parts);
    ASSERT_TRUE(batch.ok()) << batch.status();
    Compute(**batch);
  }
  EXPECT_EQ(Sum(), 30);
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(Samples, NoneComesOverOneThatIsHeld) {
  auto first = *Bring(1);
  auto second = *Bring(10);
  EXPECT_EQ(Bring(100).status().code(), absl::StatusCode::kUnavailable);
  Compute(*first);
  first.reset();
  const auto third = *Bring(1000);
  Compute(*second);
  Compute(*third);
  EXPECT_EQ(Sum(), 2022);
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(Samples, ASteadyStepAllocatesNothingAndABatchMayBeTheLastToGo) {
  Compute(**Bring(1));
  Compute(**Bring(1));
  const size_t allocations = device_.allocations();
  std::shared_ptr<SamplePath::Batch> batch;
  for (int i = 0; i < 4; ++i) {
    batch.reset();
    batch = *Bring(2);
    Compute(*batch);
  }
  EXPECT_EQ(device_.allocations(), allocations);
  const float bytes[2 * kCount] = {};
  const absl::Span<const std::byte> parts[] = {
      {reinterpret_cast<const std::byte*>(bytes), sizeof bytes}};
  EXPECT_EQ(path_->Bring(parts, SteadyNow()).status().code(), absl::StatusCode::kInvalidArgument);
  path_.reset();
  Compute(*batch);
  batch.reset();
  EXPECT_EQ(Sum(), 2 * 1 * 2 + 2 * 2 * 5);
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(Steps, ABucketThatIsTooLargeIsRefused) {
  const Piece piece = {Floats(gradients_[0]), 0, kCount};
  EXPECT_EQ(gradients_out_->Send(0, {piece}, 1, BucketType::kFloat32, kBytes + 1, Soon()).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace parley
