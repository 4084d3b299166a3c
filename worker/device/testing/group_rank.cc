#include "worker/device/testing/group_rank.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "worker/device/testing/fake_group.h"

namespace parley {
namespace {

absl::Time Soon() { return SteadyNow() + absl::Seconds(30); }

}  // namespace

std::vector<GroupGradientPath::Bucket> GroupRank::Buckets(uint32_t ranks) {
  std::vector<GroupGradientPath::Bucket> buckets(kBuckets);
  for (size_t b = 0; b < kBuckets; ++b) {
    buckets[b].flags = TensorsOf(b);
    buckets[b].values = TensorsOf(b) * kCount;
    uint32_t rank = 0;
    for (uint64_t at = 0, length = 1; at < buckets[b].values; at += length++) {
      const uint64_t count = std::min(length, buckets[b].values - at);
      buckets[b].parts.push_back({at, at, count, rank});
      rank = (rank + 1) % ranks;
    }
  }
  return buckets;
}

GroupRank::GroupRank(uint32_t rank, uint32_t ranks) : rank_(rank), ranks_(ranks) {
  path_ = *GroupGradientPath::Make(device_, stream_);
  values_ = *ParameterPath::Make(device_, {kValues * sizeof(float), 2, 4});
  parameters_ = *device_.Allocate("parameters", kValues * sizeof(float));
  seen_ = *device_.Allocate("seen", kValues * sizeof(float));
  shared_ = *device_.MakeEvent();
}

GroupRank::~GroupRank() { EXPECT_TRUE(stream_.Abort().ok()); }

void GroupRank::TakeSumsDirectly() {
  size_t values = 0;
  for (const auto& bucket : Buckets(ranks_)) values += bucket.values;
  own_ = *device_.AllocatePinned("sums", values * sizeof(float));
  path_->ToOwner(true);
}

void GroupRank::Form(const std::string& id, bool joins) {
  ASSERT_TRUE(stream_.Abort().ok());
  GroupGradientPath::Group group;
  group.rank = rank_;
  group.ranks = ranks_;
  group.buckets = Buckets(ranks_);
  if (own_.size() > 0) {
    std::byte* at = own_.data();
    for (GroupGradientPath::Bucket& bucket : group.buckets) {
      for (const DeviceGroup::Part& part : bucket.parts) {
        if (part.rank != rank_) continue;
        bucket.own.push_back(at);
        at += part.count * sizeof(float);
      }
    }
  }
  const absl::Status status = path_->Form(std::move(group));
  ASSERT_TRUE(status.ok()) << status;
  GroupStream::Group together;
  together.join =
      [this, id, joins](
          const std::function<bool()>& cancelled) -> absl::StatusOr<std::unique_ptr<DeviceGroup>> {
    while (!joins && !cancelled()) absl::SleepFor(absl::Milliseconds(1));
    DeviceGroup::Options options;
    options.id = id;
    options.rank = rank_;
    options.ranks = ranks_;
    options.cancelled = cancelled;
    auto joined = FakeGroup::Join(device_, options, SteadyNow() + absl::Seconds(30));
    if (!joined.ok()) return joined.status();
    return *std::move(joined);
  };
  together.wake = [this] {
    absl::MutexLock lock(&mu_);
    woken_ = true;
  };
  together.patience = absl::Seconds(30);
  together.stands = [this] { return stands_.load(); };
  ASSERT_TRUE(stream_.Form(std::move(together)).ok());
}

void GroupRank::Send(int step) {
  std::vector<size_t> order(kBuckets);
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(step * 10 + rank_));
  for (const size_t b : order) {
    std::vector<Piece> pieces;
    std::vector<size_t> present;
    for (size_t t = 0; t < TensorsOf(b); ++t) {
      if (!Has(step, b, t)) continue;
      DeviceBuffer& memory = gradients_[{b, t}];
      if (memory.size() == 0) memory = *device_.Allocate("gradient", kCount * sizeof(float));
      auto* const values = reinterpret_cast<float*>(memory.data());
      const float gradient = Gradient(step, rank_, b, t);
      ASSERT_TRUE(device_
                      .Compute(StreamId::kCompute, "backward", {}, {{memory.data(), memory.size()}},
                               [=] { std::fill(values, values + kCount, gradient); })
                      .ok());
      pieces.push_back({values, t * kCount, kCount});
      present.push_back(t);
    }
    ASSERT_TRUE(path_->Send(b, pieces, present, 2.0F).ok());
  }
}

absl::Status GroupRank::Deliver(int step) {
  const absl::Time deadline = SteadyNow() + absl::Seconds(30);
  const auto buckets = Buckets(ranks_);
  while (SteadyNow() < deadline) {
    const auto left =
        path_->Deliver([&](size_t b, absl::Span<const float> sums, absl::Span<const float> flags) {
          EXPECT_EQ(flags.size(), TensorsOf(b));
          if (own_.size() > 0) {
            EXPECT_TRUE(sums.empty());
            sums = Direct(b);
          }
          size_t at = 0;
          for (const DeviceGroup::Part& part : buckets[b].parts) {
            if (part.rank != rank_) continue;
            for (uint64_t i = part.send; i < part.send + part.count; ++i, ++at) {
              EXPECT_EQ(sums[at], Sum(step, b, i / kCount)) << "bucket " << b << ", value " << i;
            }
          }
          EXPECT_EQ(sums.size(), at);
          for (size_t t = 0; t < flags.size(); ++t) {
            EXPECT_EQ(flags[t] > 0, Count(step, b, t) > 0) << "bucket " << b << ", tensor " << t;
          }
          return absl::OkStatus();
        });
    if (!left.ok()) return left.status();
    if (*left == 0) return absl::OkStatus();
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(&woken_), absl::Seconds(10));
    woken_ = false;
  }
  return absl::DeadlineExceededError("the test's deadline");
}

absl::Status GroupRank::ShareValues(int step) {
  const std::vector<DeviceGroup::Part> parts = PartsOfValues(ranks_);
  std::vector<ParameterPath::Part> own;
  for (const DeviceGroup::Part& part : parts) {
    if (part.rank == rank_) own.push_back({part.send * sizeof(float), part.count * sizeof(float)});
  }
  // What nobody has brought is -1.
  const auto fill_at = [&](size_t begin, absl::Span<std::byte> values) {
    auto* const floats = reinterpret_cast<float*>(values.data());
    for (size_t i = 0; i < values.size() / sizeof(float); ++i) {
      const uint64_t at = begin + i;
      const bool is_own = std::any_of(parts.begin(), parts.end(), [&](const auto& part) {
        return part.rank == rank_ && part.send <= at && at < part.send + part.count;
      });
      floats[i] = is_own ? static_cast<float>(step + at) : -1;
    }
    return absl::OkStatus();
  };
  const auto rest = [&](std::byte* values) { return Broadcast(values, parts); };
  absl::Status status = values_->Begin();
  if (status.ok()) {
    const Piece piece = {reinterpret_cast<float*>(parameters_.data()), 0, kValues};
    status = values_->BringShared(
        {piece}, own, kValues * sizeof(float), Soon(),
        [&](auto values) { return fill_at(0, values); }, rest);
  }
  if (status.ok()) status = Forward(step);
  if (status.ok()) status = values_->Begin();
  for (const ParameterPath::Part& part : own) {
    if (!status.ok()) return status;
    status =
        values_->BringTo(parameters_.data() + part.begin, part.bytes, Soon(),
                         [&](auto values) { return fill_at(part.begin / sizeof(float), values); });
  }
  if (status.ok()) status = values_->ShareDirect(parameters_.data(), rest);
  return status.ok() ? Forward(step) : status;
}

std::vector<DeviceGroup::Part> GroupRank::PartsOfValues(uint32_t ranks) {
  std::vector<DeviceGroup::Part> parts;
  uint32_t rank = 0;
  for (uint64_t at = 0, length = 1; at < kValues; at += length++) {
    parts.push_back({at, at, std::min<uint64_t>(length, kValues - at), rank++ % ranks});
  }
  return parts;
}

absl::Status GroupRank::Broadcast(std::byte* values, const std::vector<DeviceGroup::Part>& parts) {
  auto given = std::make_shared<absl::Notification>();
  forward_is_given_ = given;
  const uint64_t work = stream_.Give({[=, this](DeviceGroup& among) {
                                        absl::Status status = among.Broadcast(
                                            values, parts, BucketType::kFloat32, Soon());
                                        if (!status.ok()) return status;
                                        status = device_.Record(*shared_, StreamId::kCommunication);
                                        launched_ = true;
                                        given->WaitForNotification();
                                        return status;
                                      },
                                      shared_.get(), nullptr});
  while (!launched_.exchange(false)) {
    if (!stream_.error().ok()) return stream_.error();
    absl::SleepFor(absl::Microseconds(100));
  }
  EXPECT_FALSE(stream_.IsLaunched(work));
  last_work_ = work;
  return absl::OkStatus();
}

absl::Status GroupRank::Forward(int step) {
  const auto* const values = reinterpret_cast<const float*>(parameters_.data());
  auto* const seen = reinterpret_cast<float*>(seen_.data());
  absl::Status status =
      device_.Compute(StreamId::kCompute, "forward", {{parameters_.data(), parameters_.size()}},
                      {{seen_.data(), seen_.size()}}, [=] { std::copy_n(values, kValues, seen); });
  forward_is_given_->Notify();
  const absl::Time deadline = Soon();
  while (!stream_.IsLaunched(last_work_) && SteadyNow() < deadline) {
    absl::SleepFor(absl::Microseconds(100));
  }
  EXPECT_TRUE(stream_.IsLaunched(last_work_));
  if (status.ok()) status = device_.Record(*shared_seen_, StreamId::kCompute);
  if (status.ok()) status = device_.Await(*shared_seen_, Soon());
  while (status.ok() && !stream_.HasEnded(last_work_)) {
    status = SteadyNow() < deadline ? stream_.error() : absl::DeadlineExceededError("the test's");
    absl::SleepFor(absl::Microseconds(100));
  }
  for (size_t i = 0; i < kValues && status.ok(); ++i) {
    EXPECT_EQ(seen[i], static_cast<float>(step + i)) << "value " << i;
  }
  return status;
}

absl::Span<const float> GroupRank::Direct(size_t b) const {
  const auto* at = reinterpret_cast<const float*>(own_.data());
  const auto buckets = Buckets(ranks_);
  for (size_t i = 0; i <= b; ++i) {
    size_t count = 0;
    for (const DeviceGroup::Part& part : buckets[i].parts) {
      if (part.rank == rank_) count += part.count;
    }
    if (i == b) return {at, count};
    at += count;
  }
  return {};
}

size_t GroupRank::Count(int step, size_t b, size_t t) const {
  size_t count = 0;
  for (uint32_t r = 0; r < ranks_; ++r)
    count += (step + r) % 3 != 0 && (t + b + r) % (ranks_ + 1) != 0;
  return count;
}

float GroupRank::Sum(int step, size_t b, size_t t) const {
  float sum = 0;
  for (uint32_t r = 0; r < ranks_; ++r) {
    if ((step + r) % 3 != 0 && (t + b + r) % (ranks_ + 1) != 0) sum += 2 * Gradient(step, r, b, t);
  }
  return sum;
}

}  // namespace parley
