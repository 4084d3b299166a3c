#include "client/push_groups.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace parley {
namespace {

TEST(PushGroups, EverySliceGoesOnceToItsShardInMessagesOfTheLimit) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    PushGroups groups(1000);
    std::vector<SliceGroup> sent;
    const uint32_t slices = 1 + random() % 200;
    for (uint32_t i = 0; i < slices; ++i) {
      SliceData slice;
      slice.set_slice(i);
      slice.set_data(std::string(random() % 600, 'x'));
      groups.Add(i % 3, std::move(slice), sent);
    }
    const size_t full = sent.size();
    for (SliceGroup& rest : groups.TakeAll()) sent.push_back(std::move(rest));
    EXPECT_TRUE(groups.TakeAll().empty());
    std::set<uint32_t> seen;
    for (size_t g = 0; g < sent.size(); ++g) {
      size_t bytes = 0;
      for (const SliceData& slice : sent[g].slices) {
        EXPECT_EQ(slice.slice() % 3, sent[g].shard);
        EXPECT_TRUE(seen.insert(slice.slice()).second);
        bytes += slice.data().size();
      }
      EXPECT_LT(bytes, 1600u);
      if (g < full) {
        EXPECT_GE(bytes, 1000u);
      }
    }
    EXPECT_EQ(seen.size(), slices);
  }
}

}  // namespace
}  // namespace parley
