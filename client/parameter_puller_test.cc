#include "client/parameter_puller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "client/testing/held_shards.h"

namespace parley {
namespace {

TEST(ParameterPuller, AsksEachShardForSoMuchAtATimeAndTakesEachSliceOnce) {
  HeldShards shards(2, 40, 100);
  ParameterPuller puller(shards.tensors(), shards.layout(), shards.arena(), shards.calls(),
                         /*group_bytes=*/800, /*calls_per_shard=*/3);
  // Answers on the thread that waits, as soon as there is nothing else to run.
  size_t most = 0;
  std::vector<int> seen(40, 0);
  const auto wait = [&](const std::function<bool()>& done) {
    return shards.RunUntil([&] {
      if (done()) return true;
      for (uint32_t shard : {0, 1}) {
        most = std::max(most, shards.HeldBytes(shard));
        if (shards.held(shard).empty()) continue;
        for (const uint32_t slice : shards.AnswerFirst(shard)) ++seen[slice];
      }
      return false;
    });
  };
  ASSERT_TRUE(puller.Pull({.version = 7}, wait).ok());
  EXPECT_EQ(most, 2400u);
  EXPECT_EQ(seen, std::vector<int>(40, 1));
  EXPECT_EQ(puller.TakePulledBytes(), 40 * 400u);
}

TEST(ParameterPuller, ARefusalEndsItAndNothingMoreIsAsked) {
  HeldShards shards(1, 10, 100);
  ParameterPuller puller(shards.tensors(), shards.layout(), shards.arena(), shards.calls(),
                         /*group_bytes=*/400, /*calls_per_shard=*/2);
  const auto wait = [&](const std::function<bool()>& done) {
    shards.RefuseFirst(0, absl::AbortedError("version 7 is gone"));
    return shards.RunUntil(done);
  };
  EXPECT_TRUE(absl::IsAborted(puller.Pull({.version = 7}, wait)));
  shards.AnswerFirst(0);
  EXPECT_TRUE(shards.RunUntil([] { return true; }).ok());
  EXPECT_TRUE(shards.held(0).empty());
}

}  // namespace
}  // namespace parley
