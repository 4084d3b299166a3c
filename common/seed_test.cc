#include "common/seed.h"

#include <gtest/gtest.h>

#include <set>

namespace parley {
namespace {

TEST(DeriveSeed, IsTheSameForEver) {
  // Checkpoints and resumed runs rest on these values.
  EXPECT_EQ(DeriveSeed(0, ""), 12035550249420947055U);
  EXPECT_EQ(DeriveSeed(7, "shuffle", {3}), DeriveSeed(7, "shuffle", {3}));
}

TEST(DeriveSeed, DiffersInEachOfItsParts) {
  std::set<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (const char* purpose : {"", "a", "b", "ab", "initial fc1.weight"}) {
      seeds.insert(DeriveSeed(seed, purpose));
      for (uint64_t number = 0; number < 10; ++number) {
        seeds.insert(DeriveSeed(seed, purpose, {number}));
        seeds.insert(DeriveSeed(seed, purpose, {number, 0}));
      }
    }
  }
  EXPECT_EQ(seeds.size(), 10U * 5 * 21);
}

TEST(RandomIncarnation, IsNeverTheSame) {
  std::set<uint64_t> drawn;
  for (int i = 0; i < 1000; ++i) drawn.insert(RandomIncarnation());
  EXPECT_EQ(drawn.size(), 1000U);
  EXPECT_EQ(drawn.count(0), 0U);
}

}  // namespace
}  // namespace parley
