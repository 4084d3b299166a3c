#include "worker/cuda/testing/sums_of_ranks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "common/clock/steady_now.h"

namespace parley {
namespace {

constexpr size_t kCount = 1000;  // values of each rank's part

absl::Time Soon() { return SteadyNow() + absl::Seconds(60); }

}  // namespace

void ReduceAndGather(const DevicePlugin& plugin, int gpu, const DeviceGroup::Options& options) {
  const auto device = *plugin.open(gpu);
  const size_t all = kCount * options.ranks;
  const DeviceBuffer pinned = *device->AllocatePinned("values", all * sizeof(float));
  const DeviceBuffer whole = *device->Allocate("values", all * sizeof(float));
  const DeviceBuffer part = *device->Allocate("part", kCount * sizeof(float));
  const auto event = *device->MakeEvent();
  const StreamId stream = StreamId::kCommunication;

  auto joined = plugin.join_group(*device, options, Soon());
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

void ReduceParts(const DevicePlugin& plugin, int gpu, const DeviceGroup::Options& options) {
  const auto device = *plugin.open(gpu);
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
  auto joined = plugin.join_group(*device, options, Soon());
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

void BroadcastParts(const DevicePlugin& plugin, int gpu, const DeviceGroup::Options& options) {
  const auto device = *plugin.open(gpu);
  const StreamId stream = StreamId::kCommunication;
  std::vector<DeviceGroup::Part> parts;
  uint64_t all = 0;
  for (uint64_t i = 0; i < 5; ++i) {
    const uint64_t count = 1000 * i + 1;
    parts.push_back({all, all, count, static_cast<uint32_t>(i % options.ranks)});
    all += count;
  }
  const size_t bytes = all * sizeof(float);
  const DeviceBuffer pinned = *device->AllocatePinned("values", bytes);
  const DeviceBuffer values = *device->Allocate("values", bytes);
  const auto event = *device->MakeEvent();
  auto joined = plugin.join_group(*device, options, Soon());
  ASSERT_TRUE(joined.ok()) << joined.status();
  auto* const host = reinterpret_cast<float*>(pinned.data());
  for (uint64_t i = 0; i < all; ++i) host[i] = -1;
  for (const DeviceGroup::Part& part : parts) {
    if (part.rank != options.rank) continue;
    for (uint64_t i = 0; i < part.count; ++i)
      host[part.send + i] = static_cast<float>(i + part.send);
  }
  ASSERT_TRUE(device->CopyToDevice(stream, values.data(), pinned.data(), bytes).ok());
  absl::Status status = (*joined)->Broadcast(values.data(), parts, BucketType::kFloat32, Soon());
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(device->CopyToHost(stream, pinned.data(), values.data(), bytes).ok());
  ASSERT_TRUE(device->Record(*event, stream).ok());
  status = (*joined)->Await([&] { return device->HasPassed(*event); }, Soon());
  ASSERT_TRUE(status.ok()) << status;
  for (uint64_t i = 0; i < all; ++i) ASSERT_EQ(host[i], static_cast<float>(i));
}

}  // namespace parley
