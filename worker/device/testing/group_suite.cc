// GroupGradientPath, and ParameterPath's sharing, over FakeDevice and FakeGroup: a thread for each
// rank. Part of step_suite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "worker/device/fake_device.h"
#include "worker/device/group_gradient_path.h"
#include "worker/device/group_stream.h"
#include "worker/device/parameter_path.h"
#include "worker/device/testing/fake_group.h"

namespace parley {
namespace {

using ::testing::IsEmpty;

constexpr size_t kBuckets = 5;

// Bucket b has b + 3 tensors of 7 values; tensor t is owned, value by value, by the ranks in turn,
// in ranges that get longer.
uint64_t TensorsOf(size_t bucket) { return bucket + 3; }
constexpr uint64_t kCount = 7;

std::vector<GroupGradientPath::Bucket> Buckets(uint32_t ranks) {
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

// One rank: a device, its path, and what came.
class Rank {
 public:
  Rank(uint32_t rank, uint32_t ranks) : rank_(rank), ranks_(ranks) {
    path_ = *GroupGradientPath::Make(device_, stream_);
    values_ = *ParameterPath::Make(device_, {kValues * sizeof(float), 2, 4});
    parameters_ = *device_.Allocate("parameters", kValues * sizeof(float));
    seen_ = *device_.Allocate("seen", kValues * sizeof(float));
    shared_ = *device_.MakeEvent();
  }
  ~Rank() { EXPECT_TRUE(stream_.Abort().ok()); }

  // Sums go to memory of the test's own.
  void TakeSumsDirectly() {
    size_t values = 0;
    for (const auto& bucket : Buckets(ranks_)) values += bucket.values;
    own_ = *device_.AllocatePinned("sums", values * sizeof(float));
    path_->ToOwner(true);
  }

  void Form(const std::string& id, bool joins = true) {
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
    together.join = [this, id, joins](const std::function<bool()>& cancelled)
        -> absl::StatusOr<std::unique_ptr<DeviceGroup>> {
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

  // The gradient of tensor t of bucket b is step + rank + b + t; a rank lacks some in each step,
  // and every third step of it has none.
  bool Has(int step, size_t bucket, size_t tensor) const {
    return (step + rank_) % 3 != 0 && (tensor + bucket + rank_) % (ranks_ + 1) != 0;
  }
  static float Gradient(int step, uint32_t rank, size_t bucket, size_t tensor) {
    return static_cast<float>(step + rank + bucket + tensor);
  }

  // In any order.
  void Send(int step) {
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
                        .Compute(StreamId::kCompute, "backward", {},
                                 {{memory.data(), memory.size()}},
                                 [=] { std::fill(values, values + kCount, gradient); })
                        .ok());
        pieces.push_back({values, t * kCount, kCount});
        present.push_back(t);
      }
      ASSERT_TRUE(path_->Send(b, pieces, present, 2.0F).ok());
    }
  }

  // All of a step; looks at what comes.
  absl::Status Deliver(int step) {
    const absl::Time deadline = SteadyNow() + absl::Seconds(30);
    const auto buckets = Buckets(ranks_);
    while (SteadyNow() < deadline) {
      const auto left = path_->Deliver(
          [&](size_t b, absl::Span<const float> sums, absl::Span<const float> flags) {
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

  // The values of a step: value i is step + i. Those of a bucket are shared, then the same in
  // place; forward looks at both.
  absl::Status ShareValues(int step) {
    const std::vector<DeviceGroup::Part> parts = PartsOfValues(ranks_);
    std::vector<ParameterPath::Part> own;
    for (const DeviceGroup::Part& part : parts) {
      if (part.rank == rank_)
        own.push_back({part.send * sizeof(float), part.count * sizeof(float)});
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
      status = values_->BringTo(
          parameters_.data() + part.begin, part.bytes, Soon(),
          [&](auto values) { return fill_at(part.begin / sizeof(float), values); });
    }
    if (status.ok()) status = values_->ShareDirect(parameters_.data(), rest);
    return status.ok() ? Forward(step) : status;
  }

  GroupGradientPath& path() { return *path_; }
  GroupStream& stream() { return stream_; }
  // The coordinator tells of another composition.
  void HearOfAnother() { stands_ = false; }
  size_t copied_to_device() const { return device_.copied_to_device(); }
  static constexpr size_t kValues = 50;
  static std::vector<DeviceGroup::Part> PartsOfValues(uint32_t ranks) {
    std::vector<DeviceGroup::Part> parts;
    uint32_t rank = 0;
    for (uint64_t at = 0, length = 1; at < kValues; at += length++) {
      parts.push_back({at, at, std::min<uint64_t>(length, kValues - at), rank++ % ranks});
    }
    return parts;
  }
  std::vector<std::string> violations() const { return device_.violations(); }
  size_t copied_to_host() const { return device_.copied_to_host(); }

 private:
  static absl::Time Soon() { return SteadyNow() + absl::Seconds(30); }

  // Until Forward has been called nobody looks at its end: that would put an order between the
  // streams which the path has not.
  absl::Status Broadcast(std::byte* values, const std::vector<DeviceGroup::Part>& parts) {
    auto given = std::make_shared<absl::Notification>();
    forward_is_given_ = given;
    const uint64_t work =
        stream_.Give({[=, this](DeviceGroup& among) {
                        absl::Status status =
                            among.Broadcast(values, parts, BucketType::kFloat32, Soon());
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

  // Reads them on the compute stream, and looks at what it has read.
  absl::Status Forward(int step) {
    const auto* const values = reinterpret_cast<const float*>(parameters_.data());
    auto* const seen = reinterpret_cast<float*>(seen_.data());
    absl::Status status = device_.Compute(
        StreamId::kCompute, "forward", {{parameters_.data(), parameters_.size()}},
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

  // What lies where bucket b's sums have gone.
  absl::Span<const float> Direct(size_t b) const {
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

  size_t Count(int step, size_t b, size_t t) const {
    size_t count = 0;
    for (uint32_t r = 0; r < ranks_; ++r)
      count += (step + r) % 3 != 0 && (t + b + r) % (ranks_ + 1) != 0;
    return count;
  }
  float Sum(int step, size_t b, size_t t) const {
    float sum = 0;
    for (uint32_t r = 0; r < ranks_; ++r) {
      if ((step + r) % 3 != 0 && (t + b + r) % (ranks_ + 1) != 0)
        sum += 2 * Gradient(step, r, b, t);
    }
    return sum;
  }

  const uint32_t rank_;
  const uint32_t ranks_;
  FakeDevice device_;
  GroupStream stream_{device_};
  std::unique_ptr<ParameterPath> values_;
  DeviceBuffer parameters_;
  DeviceBuffer seen_;
  std::unique_ptr<DeviceEvent> shared_;
  std::atomic<bool> stands_ = true;
  std::atomic<bool> launched_ = false;
  uint64_t last_work_ = 0;
  std::shared_ptr<absl::Notification> forward_is_given_;
  const std::unique_ptr<DeviceEvent> shared_seen_ = *device_.MakeEvent();
  std::map<std::pair<size_t, size_t>, DeviceBuffer> gradients_;
  DeviceBuffer own_;
  absl::Mutex mu_;
  bool woken_ = false;
  std::unique_ptr<GroupGradientPath> path_;
};

// One thread for each rank.
void OnAll(std::vector<std::unique_ptr<Rank>>& ranks, const std::function<void(Rank&)>& run) {
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (const auto& rank : ranks) threads.emplace_back([&run, &rank] { run(*rank); });
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::unique_ptr<Rank>> Make(uint32_t count) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (uint32_t rank = 0; rank < count; ++rank) {
    ranks.push_back(std::make_unique<Rank>(rank, count));
  }
  return ranks;
}

TEST(GroupGradients, EachRankGetsTheSumsOfWhatItOwns) {
  for (const uint32_t count : {1, 2, 3, 8}) {
    auto ranks = Make(count);
    const std::string id = FakeGroup::MakeId();
    OnAll(ranks, [&](Rank& rank) {
      rank.Form(id);
      for (int step = 1; step <= 6; ++step) {
        rank.Send(step);
        const absl::Status status = rank.Deliver(step);
        ASSERT_TRUE(status.ok()) << status;
      }
    });
    // Each sum crosses the bus of one rank only, flags those of all.
    size_t copied = 0;
    for (const auto& rank : ranks) {
      EXPECT_THAT(rank->violations(), IsEmpty());
      copied += rank->copied_to_host();
    }
    size_t values = 0;
    for (const auto& bucket : Buckets(count)) values += bucket.values + count * bucket.flags;
    EXPECT_EQ(copied, 6 * values * sizeof(float));
  }
}

TEST(GroupGradients, SumsGoToTheirOwnerWithoutACopyOnTheHost) {
  auto ranks = Make(3);
  const std::string id = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.TakeSumsDirectly();
    rank.Form(id);
    for (int step = 1; step <= 6; ++step) {
      rank.Send(step);
      const absl::Status status = rank.Deliver(step);
      ASSERT_TRUE(status.ok()) << status;
    }
  });
  for (const auto& rank : ranks) EXPECT_THAT(rank->violations(), IsEmpty());
}

TEST(GroupGradients, ALostRankIsAnErrorAndAnotherGroupGoesOn) {
  auto ranks = Make(3);
  const std::string id = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.Form(id);
    rank.Send(1);
    ASSERT_TRUE(rank.Deliver(1).ok());
  });
  ranks[1] = nullptr;
  for (const size_t left : {0, 2}) {
    ranks[left]->Send(2);
    const absl::Status status = ranks[left]->Deliver(2);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(ranks[left]->path().IsReady()) << "so that whoever waits for it hears of it";
    if (left == 2) continue;
    EXPECT_TRUE(ranks[0]->stream().Abort().ok());  // rank 2 hears of rank 0 only, and ends
  }
  ranks[1] = std::make_unique<Rank>(1, 3);
  const std::string next = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.Form(next);
    rank.Send(2);
    const absl::Status status = rank.Deliver(2);
    ASSERT_TRUE(status.ok()) << status;
  });
  for (const auto& rank : ranks) EXPECT_THAT(rank->violations(), IsEmpty());
}

TEST(GroupGradients, WhatAFormerGroupHasLeftIsNotDelivered) {
  auto ranks = Make(2);
  const std::string id = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.Form(id);
    rank.Send(1);
    const absl::Time deadline = SteadyNow() + absl::Seconds(30);
    while (!rank.path().IsReady() && SteadyNow() < deadline) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_TRUE(rank.path().IsReady());
  });
  const std::string next = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.Form(next);
    rank.Send(2);
    const absl::Status status = rank.Deliver(2);
    ASSERT_TRUE(status.ok()) << status;
  });
  for (const auto& rank : ranks) EXPECT_THAT(rank->violations(), IsEmpty());
}

TEST(GroupGradients, AnAbortEndsTheWaitForTheOthersWhereverItIs) {
  auto ranks = Make(2);
  const std::string id = FakeGroup::MakeId();
  // While it looks for them.
  ranks[0]->Form(id);
  absl::Time began = SteadyNow();
  EXPECT_TRUE(ranks[0]->stream().Abort().ok());
  // While they do not send.
  OnAll(ranks, [&](Rank& rank) { rank.Form(id); });
  ranks[0]->Send(1);
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_FALSE(ranks[0]->path().IsReady());
  EXPECT_TRUE(ranks[0]->stream().Abort().ok());
  EXPECT_TRUE(ranks[1]->stream().Abort().ok());
  EXPECT_LT(SteadyNow() - began, absl::Seconds(15));
}

// Who waits for the device, which waits for a rank that does not come, cannot call Abort.
TEST(GroupGradients, AnotherCompositionEndsTheWaitForTheOthersByItself) {
  auto ranks = Make(2);
  const std::string id = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) { rank.Form(id); });
  std::thread hears([&] {
    absl::SleepFor(absl::Milliseconds(20));
    ranks[0]->HearOfAnother();
  });
  const absl::Status status = ranks[0]->ShareValues(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  hears.join();
  // Also while it looks for them.
  ranks[0]->Form(FakeGroup::MakeId());
  const absl::Time deadline = SteadyNow() + absl::Seconds(15);
  while (ranks[0]->stream().error().ok() && SteadyNow() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(ranks[0]->stream().error().code(), absl::StatusCode::kCancelled);
}

TEST(GroupValues, EachComesToAllDevicesAndCrossesTheBusOnce) {
  for (const uint32_t count : {1, 2, 3, 8}) {
    auto ranks = Make(count);
    const std::string id = FakeGroup::MakeId();
    size_t before = 0;
    for (const auto& rank : ranks) before += rank->copied_to_device();
    OnAll(ranks, [&](Rank& rank) {
      rank.Form(id);
      for (int step = 1; step <= 4; ++step) {
        const absl::Status status = rank.ShareValues(step);
        ASSERT_TRUE(status.ok()) << status;
      }
    });
    size_t copied = 0;
    for (const auto& rank : ranks) {
      EXPECT_THAT(rank->violations(), IsEmpty());
      copied += rank->copied_to_device();
    }
    EXPECT_EQ(copied - before, 4 * 2 * Rank::kValues * sizeof(float));
  }
}

TEST(GroupValues, TheyAndGradientsTakeTurns) {
  auto ranks = Make(3);
  const std::string id = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.Form(id);
    for (int step = 1; step <= 6; ++step) {
      absl::Status status = rank.ShareValues(step);
      ASSERT_TRUE(status.ok()) << status;
      rank.Send(step);
      status = rank.Deliver(step);
      ASSERT_TRUE(status.ok()) << status;
    }
  });
  for (const auto& rank : ranks) EXPECT_THAT(rank->violations(), IsEmpty());
}

TEST(GroupValues, ALostRankIsAnErrorAndAnotherGroupGoesOn) {
  auto ranks = Make(3);
  const std::string id = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.Form(id);
    ASSERT_TRUE(rank.ShareValues(1).ok());
  });
  ranks[1] = nullptr;
  for (const size_t left : {0, 2}) {
    const absl::Status status = ranks[left]->ShareValues(2);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    if (left == 2) continue;
    EXPECT_TRUE(ranks[0]->stream().Abort().ok());  // rank 2 hears of rank 0 only, and ends
  }
  ranks[1] = std::make_unique<Rank>(1, 3);
  const std::string next = FakeGroup::MakeId();
  OnAll(ranks, [&](Rank& rank) {
    rank.Form(next);
    const absl::Status status = rank.ShareValues(2);
    ASSERT_TRUE(status.ok()) << status;
  });
  for (const auto& rank : ranks) EXPECT_THAT(rank->violations(), IsEmpty());
}

}  // namespace
}  // namespace parley
