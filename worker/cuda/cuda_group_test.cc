// Groups of GPUs by NCCL itself: all GPUs of this machine, a thread for each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "worker/device/plugin_loader.h"

namespace parley {
namespace {

constexpr size_t kCount = 1000;  // values of each rank's part

const DevicePlugin& Plugin() {
  static const DevicePlugin* const plugin = *LoadDevicePlugin("worker/cuda/libparley_cuda.so");
  return *plugin;
}

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

// One rank: reduces and gathers again, and looks at what comes.
void RunRank(const DeviceGroup::Options& options) {
  const auto device = *Plugin().open(static_cast<int>(options.rank));
  const size_t all = kCount * options.ranks;
  const DeviceBuffer pinned = *device->AllocatePinned("values", all * sizeof(float));
  const DeviceBuffer whole = *device->Allocate("values", all * sizeof(float));
  const DeviceBuffer part = *device->Allocate("part", kCount * sizeof(float));
  const auto event = *device->MakeEvent();
  const StreamId stream = StreamId::kCommunication;

  auto joined = Plugin().join_group(*device, options, Soon());
  ASSERT_TRUE(joined.ok()) << joined.status();
  DeviceGroup& group = **joined;
  for (int round = 0; round < 3; ++round) {
    // Value i of rank r: i + r + round; the sum over the ranks comes back.
    std::vector<float> values(all);
    for (size_t i = 0; i < all; ++i) values[i] = static_cast<float>(i + options.rank + round);
    std::memcpy(pinned.data(), values.data(), all * sizeof(float));
    ASSERT_TRUE(
        device->CopyToDevice(stream, whole.data(), pinned.data(), all * sizeof(float)).ok());
    absl::Status status =
        group.ReduceScatter(whole.data(), part.data(), kCount, BucketType::kFloat32, Soon());
    ASSERT_TRUE(status.ok()) << status;
    status = group.AllGather(part.data(), whole.data(), kCount, BucketType::kFloat32, Soon());
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(device->Record(*event, stream).ok());
    status = group.Await([&] { return device->HasPassed(*event); }, Soon());
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(device->CopyToHost(stream, pinned.data(), whole.data(), all * sizeof(float)).ok());
    ASSERT_TRUE(device->Record(*event, stream).ok());
    ASSERT_TRUE(device->Await(*event, Soon()).ok());
    std::memcpy(values.data(), pinned.data(), all * sizeof(float));
    const size_t ranks = options.ranks;
    const size_t of_ranks = ranks * (ranks - 1) / 2;
    for (size_t i = 0; i < all; ++i) {
      const auto sum = static_cast<float>(ranks * (i + round) + of_ranks);
      ASSERT_EQ(values[i], sum) << "value " << i << " of round " << round;
    }
  }
}

TEST(CudaGroup, ThereAreGpus) {
  const auto count = Plugin().count();
  ASSERT_TRUE(count.ok()) << count.status();
  ASSERT_GE(*count, 1);
}

TEST(CudaGroup, EachRankGetsTheSumOfItsPartAndAllGetAll) {
  DeviceGroup::Options options;
  options.id = *Plugin().make_group_id();
  options.ranks = static_cast<uint32_t>(*Plugin().count());
  std::vector<std::thread> ranks;
  for (options.rank = 0; options.rank < options.ranks; ++options.rank) {
    ranks.emplace_back([options] { RunRank(options); });
  }
  for (std::thread& rank : ranks) rank.join();
}

// Parts of several sizes for ranks in turn; each looks at its own.
void ReduceParts(const DeviceGroup::Options& options) {
  const auto device = *Plugin().open(static_cast<int>(options.rank));
  const StreamId stream = StreamId::kCommunication;
  std::vector<DeviceGroup::Part> parts;
  uint64_t all = 0;
  for (uint64_t i = 0; i < 5; ++i) {
    const uint64_t count = 100 * i + 1;
    parts.push_back({all, all, count, static_cast<uint32_t>(i % options.ranks)});
    all += count;
  }
  // One that all ranks receive, and still have as they sent it.
  for (uint32_t rank = 0; rank < options.ranks; ++rank) parts.push_back({all, all + 1, 1, rank});
  const size_t bytes = (all + 2) * sizeof(float);
  const DeviceBuffer pinned = *device->AllocatePinned("values", bytes);
  const DeviceBuffer values = *device->Allocate("values", bytes);
  const auto event = *device->MakeEvent();
  auto joined = Plugin().join_group(*device, options, Soon());
  ASSERT_TRUE(joined.ok()) << joined.status();
  auto* const host = reinterpret_cast<float*>(pinned.data());
  for (uint64_t i = 0; i <= all; ++i) host[i] = static_cast<float>(i + options.rank);
  ASSERT_TRUE(device->CopyToDevice(stream, values.data(), pinned.data(), bytes).ok());
  absl::Status status = (*joined)->Reduce(values.data(), parts, BucketType::kFloat32, Soon());
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(device->CopyToHost(stream, pinned.data(), values.data(), bytes).ok());
  ASSERT_TRUE(device->Record(*event, stream).ok());
  status = (*joined)->Await([&] { return device->HasPassed(*event); }, Soon());
  ASSERT_TRUE(status.ok()) << status;
  const uint64_t of_ranks = options.ranks * (options.ranks - 1) / 2;
  for (const DeviceGroup::Part& part : parts) {
    if (part.rank != options.rank) continue;
    for (uint64_t i = 0; i < part.count; ++i) {
      ASSERT_EQ(host[part.receive + i],
                static_cast<float>(options.ranks * (part.send + i) + of_ranks));
    }
  }
}

TEST(CudaGroup, EachPartsSumComesToItsRank) {
  DeviceGroup::Options options;
  options.id = *Plugin().make_group_id();
  options.ranks = static_cast<uint32_t>(*Plugin().count());
  std::vector<std::thread> ranks;
  for (options.rank = 0; options.rank < options.ranks; ++options.rank) {
    ranks.emplace_back([options] { ReduceParts(options); });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(CudaGroup, ARankThatNeverComesEndsTheWaitAtItsDeadline) {
  const auto device = *Plugin().open(0);
  DeviceGroup::Options options;
  options.id = *Plugin().make_group_id();
  options.ranks = 2;
  const absl::Time began = absl::Now();
  const auto group = Plugin().join_group(*device, options, began + absl::Seconds(3));
  EXPECT_EQ(group.status().code(), absl::StatusCode::kDeadlineExceeded) << group.status();
  EXPECT_LT(absl::Now() - began, absl::Seconds(20));
}

TEST(CudaGroup, AnotherEpochCanBeJoinedAfterAnAbort) {
  const auto device = *Plugin().open(0);
  for (uint64_t epoch = 1; epoch <= 2; ++epoch) {
    DeviceGroup::Options options;
    options.id = *Plugin().make_group_id();
    options.epoch = epoch;
    const auto group = Plugin().join_group(*device, options, Soon());
    ASSERT_TRUE(group.ok()) << group.status();
    (*group)->Abort();
    const auto done = []() -> absl::StatusOr<bool> { return true; };
    EXPECT_EQ((*group)->Await(done, Soon()).code(), absl::StatusCode::kCancelled);
  }
}

}  // namespace
}  // namespace parley
