#include "server/pipeline_stage/schedule/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace parley {
namespace {

LayerProfile Layer(int forward_ms, uint64_t output_bytes = 0) {
  LayerProfile layer;
  layer.forward = absl::Milliseconds(forward_ms);
  layer.backward = 2 * layer.forward;
  layer.output_bytes = output_bytes;
  return layer;
}

TEST(Balance, MakesTheSlowestPartAsFastAsItCanBe) {
  PartitionCosts costs;
  for (int time : {1, 2, 3, 4, 5, 6}) costs.layers.push_back(Layer(time));
  costs.places.resize(3);
  const absl::StatusOr<Partition> partition = Balance(costs);
  ASSERT_TRUE(partition.ok()) << partition.status();
  EXPECT_EQ(partition->slowest, 9 * absl::Milliseconds(3));
  EXPECT_EQ(partition->first_layers, (std::vector<uint32_t>{0, 3, 5}));
}

TEST(Balance, AFasterMachineGetsMore) {
  PartitionCosts costs;
  costs.layers.assign(12, Layer(1));
  costs.places.resize(3);
  costs.places[1].speed = 2;
  EXPECT_EQ(Balance(costs)->first_layers, (std::vector<uint32_t>{0, 3, 9}));
}

TEST(Balance, ALinkMayBeSlowerThanAPart) {
  PartitionCosts costs;
  costs.layers = {Layer(1, 1'000'000), Layer(1, 1'000'000), Layer(1, 1000), Layer(1, 0)};
  costs.places.resize(2);
  EXPECT_EQ(Balance(costs)->first_layers[1], 2u);
  costs.link_bytes_per_second = 1e8;  // 10 ms for the large ones
  const absl::StatusOr<Partition> partition = Balance(costs);
  EXPECT_EQ(partition->first_layers[1], 3u);
  EXPECT_EQ(partition->slowest, absl::Milliseconds(9));
}

TEST(Balance, OfCutsThatAreAsGoodTheOneThatSendsLessIsTaken) {
  PartitionCosts costs;
  costs.places.resize(2);
  for (int small : {0, 1, 2}) {
    costs.layers = {Layer(3, 100), Layer(0, 100), Layer(0, 100), Layer(3, 0)};
    costs.layers[small].output_bytes = 1;
    EXPECT_EQ(Balance(costs)->first_layers[1], static_cast<uint32_t>(small + 1));
  }
}

TEST(Balance, MemoryIsKept) {
  PartitionCosts costs;
  costs.layers.assign(4, Layer(1));
  for (LayerProfile& layer : costs.layers) {
    layer.activation_bytes = 10;
    layer.parameter_bytes = 100;
  }
  costs.places.resize(2);
  costs.places[0].live_microbatches = 5;
  costs.places[0].memory_bytes = 299;  // two layers have 300
  EXPECT_EQ(Balance(costs)->first_layers[1], 1u);
  costs.places[0].memory_bytes = 149;
  EXPECT_EQ(Balance(costs).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Balance, WhatCannotBeIsRefused) {
  PartitionCosts costs;
  costs.layers.assign(2, Layer(1));
  EXPECT_EQ(Balance(costs).status().code(), absl::StatusCode::kInvalidArgument);
  costs.places.resize(3);
  EXPECT_EQ(Balance(costs).status().code(), absl::StatusCode::kInvalidArgument);
  costs.places.resize(2);
  costs.places[0].speed = 0;
  EXPECT_EQ(Balance(costs).status().code(), absl::StatusCode::kInvalidArgument);
}

// The best of all cuts of the layers from `begin` on into the places from `place` on.
absl::Duration BestOf(const PartitionCosts& costs, size_t begin, size_t place) {
  if (place == costs.places.size()) {
    return begin == costs.layers.size() ? absl::ZeroDuration() : absl::InfiniteDuration();
  }
  absl::Duration best = absl::InfiniteDuration(), time;
  for (size_t end = begin + 1; end <= costs.layers.size(); ++end) {
    const LayerProfile& last = costs.layers[end - 1];
    time += last.forward + last.backward;
    absl::Duration one = std::max(time / costs.places[place].speed, BestOf(costs, end, place + 1));
    if (end < costs.layers.size()) {
      one = std::max(
          one, absl::Seconds(static_cast<double>(last.output_bytes) / costs.link_bytes_per_second));
    }
    best = std::min(best, one);
  }
  return best;
}

TEST(Balance, IsAsGoodAsTheBestOfAllCuts) {
  std::mt19937_64 random(20261123);
  for (int round = 0; round < 300; ++round) {
    PartitionCosts costs;
    for (uint64_t i = 1 + random() % 9; i > 0; --i) {
      costs.layers.push_back(Layer(static_cast<int>(random() % 20), random() % 1'000'000));
    }
    costs.places.resize(1 + random() % std::min<size_t>(4, costs.layers.size()));
    for (PartPlace& place : costs.places) place.speed = 0.5 * static_cast<double>(1 + random() % 4);
    costs.link_bytes_per_second = 2e7;
    const absl::StatusOr<Partition> partition = Balance(costs);
    ASSERT_TRUE(partition.ok()) << partition.status();
    ASSERT_EQ(partition->slowest, BestOf(costs, 0, 0)) << "round " << round;
    ASSERT_EQ(partition->first_layers[0], 0u);
    ASSERT_TRUE(std::is_sorted(partition->first_layers.begin(), partition->first_layers.end(),
                               std::less_equal<>()));
  }
}

}  // namespace
}  // namespace parley
