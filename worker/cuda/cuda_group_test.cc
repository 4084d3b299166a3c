// Groups of GPUs by NCCL itself: all GPUs of this machine, a thread for each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "common/clock/steady_now.h"
#include "worker/cuda/testing/sums_of_ranks.h"
#include "worker/device/plugin_loader.h"

namespace parley {
namespace {

const DevicePlugin& Plugin() {
  static const DevicePlugin* const plugin = *LoadDevicePlugin("worker/cuda/libparley_cuda.so");
  return *plugin;
}

// A GPU for each rank.
int GpuOf(const DeviceGroup::Options& options) { return static_cast<int>(options.rank); }

absl::Time Soon() { return SteadyNow() + absl::Seconds(60); }

TEST(CudaGroup, ThereAreGpus) {
  const auto count = Plugin().count();
  ASSERT_TRUE(count.ok()) << count.status();
  ASSERT_GE(*count, 1);
}

// One thread for each rank, all with one id.
void OnAll(void (*run)(const DevicePlugin&, int gpu, const DeviceGroup::Options&)) {
  DeviceGroup::Options options;
  options.id = *Plugin().make_group_id();
  options.ranks = static_cast<uint32_t>(*Plugin().count());
  std::vector<std::thread> ranks;
  for (options.rank = 0; options.rank < options.ranks; ++options.rank) {
    ranks.emplace_back([run, options] { run(Plugin(), GpuOf(options), options); });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(CudaGroup, EachRankGetsTheSumOfItsPartAndAllGetAll) { OnAll(ReduceAndGather); }
TEST(CudaGroup, EachPartsSumComesToItsRank) { OnAll(ReduceParts); }
TEST(CudaGroup, EachRanksPartsComeToAll) { OnAll(BroadcastParts); }

TEST(CudaGroup, ARankThatNeverComesEndsTheWaitAtItsDeadline) {
  const auto device = *Plugin().open(0);
  DeviceGroup::Options options;
  options.id = *Plugin().make_group_id();
  options.ranks = 2;
  const absl::Time began = SteadyNow();
  const auto group = Plugin().join_group(*device, options, began + absl::Seconds(3));
  EXPECT_EQ(group.status().code(), absl::StatusCode::kDeadlineExceeded) << group.status();
  EXPECT_LT(SteadyNow() - began, absl::Seconds(20));
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
