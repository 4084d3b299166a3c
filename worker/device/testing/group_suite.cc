// GroupGradientPath over FakeDevice and FakeGroup: a thread for each rank. Part of step_suite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "worker/device/fake_device.h"
#include "worker/device/group_gradient_path.h"
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
    path_ = *GroupGradientPath::Make(device_);
  }

  // Sums go to memory of the test's own.
  void TakeSumsDirectly() {
    size_t values = 0;
    for (const auto& bucket : Buckets(ranks_)) values += bucket.values;
    own_ = *device_.AllocatePinned("sums", values * sizeof(float));
    path_->ToOwner(true);
  }

  void Form(const std::string& id, bool joins = true) {
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
    group.join = [this, id, joins](const std::function<bool()>& cancelled)
        -> absl::StatusOr<std::unique_ptr<DeviceGroup>> {
      while (!joins && !cancelled()) absl::SleepFor(absl::Milliseconds(1));
      DeviceGroup::Options options;
      options.id = id;
      options.rank = rank_;
      options.ranks = ranks_;
      options.cancelled = cancelled;
      auto joined = FakeGroup::Join(device_, options, absl::Now() + absl::Seconds(30));
      if (!joined.ok()) return joined.status();
      return *std::move(joined);
    };
    group.wake = [this] {
      absl::MutexLock lock(&mu_);
      woken_ = true;
    };
    group.patience = absl::Seconds(30);
    const absl::Status status = path_->Form(std::move(group));
    ASSERT_TRUE(status.ok()) << status;
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
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    const auto buckets = Buckets(ranks_);
    while (absl::Now() < deadline) {
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

  GroupGradientPath& path() { return *path_; }
  std::vector<std::string> violations() const { return device_.violations(); }
  size_t copied_to_host() const { return device_.copied_to_host(); }

 private:
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
    if (left == 0) ranks[left]->path().Abort();  // so that rank 2, which hears of rank 0 only, ends
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

TEST(GroupGradients, AnAbortEndsTheWaitForTheOthersWhereverItIs) {
  auto ranks = Make(2);
  const std::string id = FakeGroup::MakeId();
  // While it looks for them.
  ranks[0]->Form(id);
  absl::Time began = absl::Now();
  ranks[0]->path().Abort();
  // While they do not send.
  OnAll(ranks, [&](Rank& rank) { rank.Form(id); });
  ranks[0]->Send(1);
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_FALSE(ranks[0]->path().IsReady());
  ranks[0]->path().Abort();
  ranks[1]->path().Abort();
  EXPECT_LT(absl::Now() - began, absl::Seconds(15));
}

}  // namespace
}  // namespace parley
