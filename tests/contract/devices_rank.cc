#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/reduce/given_sums.h"
#include "client/reduce/shared_memory_reducer.h"
#include "client/tensor_arena.h"
#include "common/shared_memory/segment_heap.h"
#include "tests/contract/reducer_contract.h"
#include "worker/device/fake_device.h"
#include "worker/device/group_gradient_path.h"
#include "worker/device/group_stream.h"
#include "worker/device/testing/fake_group.h"

namespace parley {
namespace {

// What DeviceBinding makes of GivenSums and GroupGradientPath, with a bucket for each tensor and a
// thread that takes the sums as the training thread would. All but the values of float32 tensors.
class DevicesReducer final : public Reducer {
 public:
  DevicesReducer(const std::string& address, const std::vector<TensorSpec>& tensors,
                 TensorArena& gradients)
      : gradients_(gradients),
        sums_(std::make_unique<SharedMemoryReducer>(address, tensors, gradients)) {}
  ~DevicesReducer() override { Abort(); }

  absl::Status Form(Group group, Listener* listener) override {
    Abort();
    DeviceGroup::Options options;
    options.id = absl::StrCat("devices ", group.members.front().address(), " ", group.composition);
    options.rank = group.rank;
    options.ranks = static_cast<uint32_t>(group.members.size());
    GroupGradientPath::Group path;
    path.rank = group.rank;
    path.ranks = options.ranks;
    tensor_of_.clear();
    bucket_of_.clear();
    for (size_t tensor = 0; tensor < group.ranges.size(); ++tensor) {
      if (group.ranges[tensor].empty()) continue;
      GroupGradientPath::Bucket bucket;
      bucket.values = gradients_.tensor(tensor).size() / sizeof(float);
      bucket.flags = 1;
      for (const Range& range : group.ranges[tensor]) {
        const uint64_t at = range.begin / sizeof(float);
        bucket.parts.push_back({at, at, range.bytes / sizeof(float), range.rank});
      }
      bucket_of_[tensor] = tensor_of_.size();
      tensor_of_.push_back(tensor);
      path.buckets.push_back(std::move(bucket));
    }
    ranges_ = group.ranges;
    rank_ = group.rank;
    {
      absl::MutexLock lock(&mu_);
      if (absl::Status formed = sums_.Form(std::move(group), listener); !formed.ok()) return formed;
    }
    if (absl::Status formed = path_->Form(std::move(path)); !formed.ok()) return formed;
    GroupStream::Group together;
    together.join = [this, options](const std::function<bool()>& cancelled) mutable
        -> absl::StatusOr<std::unique_ptr<DeviceGroup>> {
      options.cancelled = cancelled;
      auto joined = FakeGroup::Join(device_, options, absl::InfiniteFuture());
      if (!joined.ok()) return joined.status();
      return *std::move(joined);
    };
    together.wake = [this] {
      absl::MutexLock lock(&mu_);
      woken_ = true;
    };
    together.patience = absl::InfiniteDuration();
    if (absl::Status formed = stream_.Form(std::move(together)); !formed.ok()) return formed;
    taker_ = std::thread([this] { TakeSums(); });
    return absl::OkStatus();
  }

  void Open(uint64_t step, double weight) override {
    absl::MutexLock lock(&mu_);
    sums_.Open(step, weight);
    sent_.assign(tensor_of_.size(), false);
  }
  void Offer(size_t tensor) override { Send(tensor, /*has=*/true); }
  void Close() override {
    for (const size_t tensor : tensor_of_) Send(tensor, /*has=*/false);
    absl::MutexLock lock(&mu_);
    sums_.Close();
  }
  bool done() const override {
    absl::MutexLock lock(&mu_);
    return sums_.done();
  }
  std::string Missing() const override {
    absl::MutexLock lock(&mu_);
    return sums_.Missing();
  }

  void Share(const Values& values, absl::Span<const std::byte> bytes) override {
    absl::MutexLock lock(&mu_);
    sums_.Share(values, bytes);
  }
  void Withhold(const Values& values) override {
    absl::MutexLock lock(&mu_);
    sums_.Withhold(values);
  }
  Taken Take(const Values& values, absl::Span<std::byte> to) override {
    absl::MutexLock lock(&mu_);
    return sums_.Take(values, to);
  }
  void Watch(std::optional<uint32_t> rank) override {
    absl::MutexLock lock(&mu_);
    sums_.Watch(rank);
  }

  void Abort() override {
    EXPECT_TRUE(stream_.Abort().ok());
    if (taker_.joinable()) {
      {
        absl::MutexLock lock(&mu_);
        stopping_ = true;
      }
      taker_.join();
    }
    absl::MutexLock lock(&mu_);
    stopping_ = false;
    woken_ = false;
    sent_.clear();
    sums_.Abort();
  }

 private:
  // Of a step once; without a gradient where there is none.
  void Send(size_t tensor, bool has) {
    const auto bucket = bucket_of_.find(tensor);
    float weight = 0;
    {
      absl::MutexLock lock(&mu_);
      if (bucket == bucket_of_.end() || sent_.empty() || sent_[bucket->second]) return;
      sent_[bucket->second] = true;
      weight = static_cast<float>(sums_.weight());
    }
    std::vector<Piece> pieces;
    std::vector<size_t> present;
    if (has) {
      const absl::Span<const std::byte> gradient = gradients_.tensor(tensor);
      DeviceBuffer& there = on_device_[tensor];
      if (there.size() == 0) there = *device_.Allocate("a gradient", gradient.size());
      const std::vector<std::byte> now(gradient.begin(), gradient.end());
      ASSERT_TRUE(
          device_
              .Compute(StreamId::kCompute, "backward", {}, {{there.data(), there.size()}},
                       [now, to = there.data()] { std::memcpy(to, now.data(), now.size()); })
              .ok());
      pieces.push_back(
          {reinterpret_cast<float*>(there.data()), 0, gradient.size() / sizeof(float)});
      present.push_back(0);
    }
    ASSERT_TRUE(path_->Send(bucket->second, pieces, present, weight).ok());
  }

  void TakeSums() {
    while (true) {
      {
        absl::MutexLock lock(&mu_);
        const auto called = [this]()
                                ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stopping_ || woken_; };
        mu_.Await(absl::Condition(&called));
        if (stopping_) return;
        woken_ = false;
      }
      const auto left = path_->Deliver(
          [this](size_t bucket, absl::Span<const float> sums, absl::Span<const float> flags) {
            Given(tensor_of_[bucket], sums, flags[0] > 0);
            return absl::OkStatus();
          });
      if (!left.ok()) return;  // no more comes until the next Form
    }
  }

  void Given(size_t tensor, absl::Span<const float> sums, bool any) {
    for (const Range& range : ranges_[tensor]) {
      if (range.rank != rank_ || !any) continue;
      std::memcpy(gradients_.tensor(tensor).data() + range.begin, sums.data(), range.bytes);
      sums.remove_prefix(range.bytes / sizeof(float));
    }
    absl::MutexLock lock(&mu_);
    sums_.Given(tensor, any);
  }

  TensorArena& gradients_;
  FakeDevice device_;
  std::map<size_t, DeviceBuffer> on_device_;  // by tensor
  GroupStream stream_{device_};
  const std::unique_ptr<GroupGradientPath> path_ = *GroupGradientPath::Make(device_, stream_);

  // Constant from Form to Abort.
  std::vector<size_t> tensor_of_;
  std::map<size_t, size_t> bucket_of_;
  std::vector<std::vector<Range>> ranges_;
  uint32_t rank_ = 0;
  std::thread taker_;

  mutable absl::Mutex mu_;
  GivenSums sums_ ABSL_GUARDED_BY(mu_);
  std::vector<bool> sent_ ABSL_GUARDED_BY(mu_);  // by bucket, in the step; empty: none is open
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
};

class DevicesRank final : public ReducerRank {
 public:
  DevicesRank(const std::string& address, const std::vector<TensorSpec>& tensors)
      : tensors_(tensors), gradients_(tensors_, &heap_), reducer_(address, tensors_, gradients_) {}
  Reducer& reducer() override { return reducer_; }
  absl::Span<std::byte> gradient(size_t tensor) override { return gradients_.tensor(tensor); }

 private:
  const std::vector<TensorSpec> tensors_;
  SegmentHeap heap_{0};
  TensorArena gradients_;
  DevicesReducer reducer_;
};

}  // namespace

ReducerKind DevicesKind() {
  return {.name = "Devices",
          .ordered = true,  // by FakeGroup
          .float64 = false,
          .make = [](const std::string& address, const std::vector<TensorSpec>& tensors) {
            return std::make_unique<DevicesRank>(address, tensors);
          }};
}

}  // namespace parley
