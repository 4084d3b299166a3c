#include "common/direct/direct_loops.h"

#include <gtest/gtest.h>

#include <map>

#include "common/security/credentials_for_test.h"

namespace parley {
namespace {

TEST(DirectLoopsTest, ConnectionsAreDividedAmongAllOfThem) {
  DirectLoops loops(3);
  std::map<DirectLoop*, int> connections;
  for (int i = 0; i < 12; ++i) ++connections[loops.Next()];
  EXPECT_EQ(connections.count(nullptr), 0u);
  ASSERT_EQ(connections.size(), 3u);
  for (const auto& [loop, count] : connections) EXPECT_EQ(count, 4);
  loops.End();
  EXPECT_EQ(loops.Next(), nullptr);
}

TEST(DirectLoopsTest, ThereAreAsManyAsAreOfUse) {
  EXPECT_EQ(LoopsFor(nullptr, /*plain=*/1, /*cores=*/64), 1u);
  EXPECT_EQ(LoopsFor(nullptr, /*plain=*/2, /*cores=*/64), 2u);
  EXPECT_EQ(LoopsFor(nullptr, /*plain=*/2, /*cores=*/1), 1u);
  EXPECT_EQ(LoopsFor(OwnTlsCredentials(), /*plain=*/1, /*cores=*/4), 4u);
  EXPECT_EQ(LoopsFor(OwnTlsCredentials(), /*plain=*/1, /*cores=*/64), 8u);
  EXPECT_EQ(LoopsFor(OwnTlsCredentials(), /*plain=*/1, /*cores=*/0), 1u);
}

}  // namespace
}  // namespace parley
