#include "client/reduce/group_values.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"

namespace parley {
namespace {

using Taken = Reducer::Taken;

// Slices of two ranks; slices 0 and 2 are rank 1's.
const std::vector<std::pair<uint64_t, uint32_t>> kValues = {{8, 1}, {100, 0}, {3, 1}};

Reducer::Values Of(uint32_t slice, uint64_t version) {
  return {.slice = slice,
          .rank = kValues[slice].second,
          .version = version,
          .bytes = kValues[slice].first};
}

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

class GroupValuesTest : public testing::Test {
 protected:
  // What the reader gets; "-" where there is nothing yet, "!" where the shards are to be asked.
  std::string Take(uint32_t slice, uint64_t version) {
    std::string to(kValues[slice].first, ' ');
    switch (peer_->Take(Of(slice, version), {reinterpret_cast<std::byte*>(to.data()), to.size()})) {
      case Taken::kPending:
        return "-";
      case Taken::kWithheld:
        return "!";
      default:
        return to;
    }
  }

  const std::unique_ptr<OwnValues> own_ = *OwnValues::Make(ValuesLayout(kValues, 1));
  const std::unique_ptr<PeerValues> peer_ =
      *PeerValues::Make(ValuesLayout(kValues, 1), *MemorySegment::OfPeer(own_->segment()->fd()));
};

TEST_F(GroupValuesTest, AReaderGetsTheVersionThatItAsksFor) {
  EXPECT_EQ(Take(0, 0), "-");
  EXPECT_TRUE(own_->Share(Of(0, 0), Bytes("at zero.")));
  EXPECT_EQ(Take(0, 0), "at zero.");
  EXPECT_EQ(Take(0, 1), "-");
  EXPECT_TRUE(own_->Share(Of(2, 1), Bytes("one")));
  EXPECT_TRUE(own_->Share(Of(0, 1), Bytes("at one..")));
  EXPECT_EQ(Take(0, 1), "at one..");
  EXPECT_EQ(Take(2, 1), "one");
  EXPECT_EQ(Take(0, 0), "-") << "it is there no more";
}

TEST_F(GroupValuesTest, AVersionIsSharedOnce) {
  EXPECT_TRUE(own_->Share(Of(2, 4), Bytes("one")));
  EXPECT_FALSE(own_->Share(Of(2, 4), Bytes("two")));
  EXPECT_EQ(Take(2, 4), "one");
}

TEST_F(GroupValuesTest, WhatIsWithheldIsToBeAskedOfTheShards) {
  EXPECT_TRUE(own_->Withhold(Of(0, 4)));
  EXPECT_FALSE(own_->Withhold(Of(0, 4)));
  EXPECT_EQ(Take(0, 4), "!");
  EXPECT_EQ(Take(0, 5), "-");
  own_->End();
  EXPECT_EQ(Take(0, 4), "-");
}

TEST_F(GroupValuesTest, WhatIsAnotherRanksOrOfAnotherSizeIsNeverTaken) {
  EXPECT_FALSE(own_->Share(Of(1, 1), Bytes(std::string(100, 'x'))));
  EXPECT_EQ(Take(1, 1), "!");
  EXPECT_FALSE(own_->Share(Of(0, 1), Bytes("short")));
  EXPECT_FALSE(own_->Share({.slice = 7, .rank = 1, .version = 1, .bytes = 8}, Bytes("at one..")));
  std::string to = "short";
  EXPECT_EQ(peer_->Take({.slice = 0, .rank = 1, .version = 1, .bytes = 5},
                        {reinterpret_cast<std::byte*>(to.data()), to.size()}),
            Taken::kWithheld);
}

TEST(GroupValues, AMixtureOfTwoVersionsIsNeverTaken) {
  const std::vector<std::pair<uint64_t, uint32_t>> large = {{1 << 20, 0}};
  const auto own = *OwnValues::Make(ValuesLayout(large, 0));
  const auto peer = *PeerValues::Make(ValuesLayout(large, 0), own->segment());
  std::atomic<uint64_t> version = 0;
  std::atomic<bool> over = false;
  std::thread owner([&] {
    std::string values(1 << 20, ' ');
    while (!over) {
      values.assign(values.size(), static_cast<char>(version + 1));
      own->Share({.slice = 0, .rank = 0, .version = version + 1, .bytes = 1 << 20}, Bytes(values));
      ++version;
      // A reader that is fast has it whole.
      absl::SleepFor(absl::Microseconds(100 * (version % 4)));
    }
  });
  std::string to(1 << 20, ' ');
  int taken = 0;
  for (int i = 0; i < 3000; ++i) {
    const uint64_t asked = version;
    if (i % 16 == 0) absl::SleepFor(absl::Microseconds(50));
    if (peer->Take({.slice = 0, .rank = 0, .version = asked, .bytes = 1 << 20},
                   {reinterpret_cast<std::byte*>(to.data()), to.size()}) != Taken::kTaken) {
      continue;
    }
    ++taken;
    const bool whole = to == std::string(to.size(), static_cast<char>(asked));
    EXPECT_TRUE(whole) << "version " << asked;
    if (!whole) break;
  }
  over = true;
  owner.join();
  std::printf("taken: %d\n", taken);
}

TEST_F(GroupValuesTest, ASegmentThatIsTooSmallIsRefused) {
  const std::vector<std::pair<uint64_t, uint32_t>> large = {{1 << 20, 1}};
  EXPECT_EQ(PeerValues::Make(ValuesLayout(large, 1), own_->segment()).status().code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace parley
