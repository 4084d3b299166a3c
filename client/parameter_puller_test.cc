#include "client/parameter_puller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/testing/held_shards.h"

namespace parley {
namespace {

// Runs so many answers.
void RunAnswers(HeldShards& shards, int answers) {
  ASSERT_TRUE(shards.RunUntil([&] { return answers-- == 0; }).ok());
}

TEST(ParameterPuller, AsksEachShardForSoMuchAtATimeAndTakesEachSliceOnce) {
  HeldShards shards(2, 40, 100);
  ParameterPuller puller(shards.tensors(), shards.layout(), shards.parameters(), shards.calls(),
                         /*parallel=*/nullptr, /*group_bytes=*/1200, /*calls_per_shard=*/2);
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

TEST(ParameterPuller, BuffersAreAskedForFirst) {
  HeldShards shards(1, 5, 100, /*slices_of_each=*/1, /*buffers=*/2);
  ParameterPuller puller(shards.tensors(), shards.layout(), shards.parameters(), shards.calls(),
                         /*parallel=*/nullptr, /*group_bytes=*/400, /*calls_per_shard=*/1);
  std::vector<uint32_t> order;
  const auto wait = [&](const std::function<bool()>& done) {
    return shards.RunUntil([&] {
      if (done()) return true;
      if (shards.held(0).empty()) return false;
      for (const uint32_t slice : shards.AnswerFirst(0)) order.push_back(slice);
      return false;
    });
  };
  ASSERT_TRUE(puller.Pull({.version = 7}, wait).ok());
  EXPECT_EQ(order, (std::vector<uint32_t>{3, 4, 0, 1, 2}));
}

TEST(ParameterPuller, AShardThatHasMuchIsAskedForLittleAtFirst) {
  // Each 20,000 bytes.
  HeldShards shards(1, 40, 5000, /*slices_of_each=*/1, /*buffers=*/2);
  ParameterPuller puller(shards.tensors(), shards.layout(), shards.parameters(), shards.calls(),
                         /*parallel=*/nullptr, /*group_bytes=*/80000, /*calls_per_shard=*/16);
  std::vector<std::vector<uint32_t>> calls;
  const auto wait = [&](const std::function<bool()>& done) {
    return shards.RunUntil([&] {
      if (done()) return true;
      if (!shards.held(0).empty()) calls.push_back(shards.AnswerFirst(0));
      return false;
    });
  };
  ASSERT_TRUE(puller.Pull({.version = 7}, wait).ok());
  ASSERT_GE(calls.size(), 9u);
  EXPECT_EQ(calls[0], std::vector<uint32_t>{38});
  EXPECT_EQ(calls[1], std::vector<uint32_t>{39});
  std::vector<size_t> sizes;
  for (size_t i = 2; i < 9; ++i) sizes.push_back(calls[i].size());
  EXPECT_EQ(sizes, (std::vector<size_t>{1, 1, 1, 2, 4, 4, 4}));
  EXPECT_EQ(puller.TakePulledBytes(), 40 * 20000u);
}

TEST(ParameterPuller, TinySlicesComeBeforeOthersAndAlone) {
  HeldShards shards(1, 41, 5000, /*slices_of_each=*/1, /*buffers=*/0, /*tiny=*/3);
  ParameterPuller puller(shards.tensors(), shards.layout(), shards.parameters(), shards.calls(),
                         /*parallel=*/nullptr, /*group_bytes=*/80000, /*calls_per_shard=*/1);
  std::vector<std::vector<uint32_t>> calls;
  const auto wait = [&](const std::function<bool()>& done) {
    return shards.RunUntil([&] {
      if (done()) return true;
      if (!shards.held(0).empty()) calls.push_back(shards.AnswerFirst(0));
      return false;
    });
  };
  ASSERT_TRUE(puller.Pull({.version = 7}, wait).ok());
  EXPECT_EQ(calls[0], (std::vector<uint32_t>{38, 39, 40}));
  EXPECT_EQ(calls[1], (std::vector<uint32_t>{0}));
}

TEST(ParameterPuller, ARefusalEndsItAndNothingMoreIsAsked) {
  HeldShards shards(1, 10, 100);
  ParameterPuller puller(shards.tensors(), shards.layout(), shards.parameters(), shards.calls(),
                         /*parallel=*/nullptr, /*group_bytes=*/400, /*calls_per_shard=*/2);
  const auto wait = [&](const std::function<bool()>& done) {
    shards.RefuseFirst(0, absl::AbortedError("version 7 is gone"));
    return shards.RunUntil(done);
  };
  EXPECT_TRUE(absl::IsAborted(puller.Pull({.version = 7}, wait)));
  shards.AnswerFirst(0);
  EXPECT_TRUE(shards.RunUntil([] { return true; }).ok());
  EXPECT_TRUE(shards.held(0).empty());
}

TEST(ParameterPuller, ATensorIsHereWhenAllItsSlicesAre) {
  HeldShards shards(2, 3, 100, /*slices_of_each=*/2);
  ParameterPuller puller(shards.tensors(), shards.layout(), shards.parameters(), shards.calls(),
                         /*parallel=*/nullptr, /*group_bytes=*/400, /*calls_per_shard=*/16);
  puller.Begin({.version = 7});
  EXPECT_TRUE(puller.pulling());
  // Answers in this order: of each shard the first tensor's slice first.
  std::vector<uint32_t> order = {0, 0, 1, 1, 0, 1};
  size_t answered = 0;
  const auto wait = [&](const std::function<bool()>& done) {
    return shards.RunUntil([&] {
      if (done()) return true;
      if (answered < order.size()) shards.AnswerFirst(order[answered++]);
      return false;
    });
  };
  const auto is_here = [&](size_t tensor) {
    const auto values = shards.parameters().tensor(tensor);
    return std::all_of(values.begin(), values.end(),
                       [](std::byte b) { return b == std::byte{'x'}; });
  };
  ASSERT_TRUE(puller.Await({{0}}, wait).ok());
  EXPECT_EQ(answered, 3u);
  EXPECT_TRUE(is_here(0));
  EXPECT_FALSE(is_here(2));
  ASSERT_TRUE(puller.Await({{0}}, wait).ok());
  EXPECT_EQ(answered, 3u);
  ASSERT_TRUE(puller.Await({{1}}, wait).ok());
  EXPECT_EQ(answered, 4u);
  ASSERT_TRUE(puller.Await(std::nullopt, wait).ok());
  EXPECT_FALSE(puller.pulling());
  EXPECT_TRUE(is_here(1) && is_here(2));
  EXPECT_EQ(puller.TakePulledBytes(), 6 * 400u);
}

TEST(ParameterPuller, TheBeginningOfATensorIsHereWhenAllSlicesInItAre) {
  HeldShards shards(2, 2, 100, /*slices_of_each=*/4);
  ParameterPuller puller(shards.tensors(), shards.layout(), shards.parameters(), shards.calls(),
                         /*parallel=*/nullptr, /*group_bytes=*/400, /*calls_per_shard=*/16);
  size_t answered = 0;
  std::vector<uint32_t> order;
  const auto wait = [&](const std::function<bool()>& done) {
    return shards.RunUntil([&] {
      if (done()) return true;
      if (answered < order.size()) shards.AnswerFirst(order[answered++]);
      return false;
    });
  };
  // Slices of 400 bytes, of the first tensor those of shard 1 first. Twice: the second time nothing
  // is here.
  for (uint64_t version : {7, 8}) {
    answered = 0;
    order = {1, 1, 0, 0, 1, 1, 0, 0};
    puller.Begin({.version = version});
    EXPECT_FALSE(puller.IsHere(0));
    for (const auto& [bytes, after] : std::vector<std::pair<size_t, size_t>>{
             {0, 0}, {1, 3}, {800, 3}, {801, 4}, {1200, 4}, {1600, 4}}) {
      ASSERT_TRUE(puller.Await({{0, bytes}}, wait).ok());
      EXPECT_EQ(answered, after) << bytes;
    }
    EXPECT_TRUE(puller.IsHere(0));
    EXPECT_FALSE(puller.IsHere(1));
    ASSERT_TRUE(puller.Await(std::nullopt, wait).ok());
    EXPECT_TRUE(puller.IsHere(1));
  }
}

TEST(ParameterPuller, WhatItsShardHasWrittenAgainMeanwhileIsNotTaken) {
  HeldShards shards(1, 2, 100);
  std::atomic<uint64_t> count = 3;
  shards.LendValues(&count);
  ParameterPuller puller(shards.tensors(), shards.layout(), shards.parameters(), shards.calls());
  bool writes = false;
  const auto wait = [&](const std::function<bool()>& done) {
    return shards.RunUntil([&] {
      if (done()) return true;
      if (shards.held(0).empty()) return false;
      if (writes) ++count;
      shards.AnswerFirst(0);
      return false;
    });
  };
  EXPECT_EQ(puller.Pull({.version = 7}, wait), absl::OkStatus());
  writes = true;
  const absl::Status pulled = puller.Pull({.version = 8}, wait);
  EXPECT_TRUE(absl::IsUnavailable(pulled)) << pulled;
  EXPECT_NE(pulled.message().find("has written slice 0 again"), std::string::npos) << pulled;
}

TEST(ParameterPuller, AfterARefusalNothingIsOnItsWay) {
  HeldShards shards(1, 2, 100);
  ParameterPuller puller(shards.tensors(), shards.layout(), shards.parameters(), shards.calls(),
                         /*parallel=*/nullptr, /*group_bytes=*/400, /*calls_per_shard=*/2);
  puller.Begin({.version = 7});
  shards.AnswerFirst(0);
  shards.RefuseFirst(0, absl::AbortedError("version 7 is gone"));
  const auto wait = [&](const std::function<bool()>& done) { return shards.RunUntil(done); };
  EXPECT_TRUE(absl::IsAborted(puller.Await({{1}}, wait)));
  EXPECT_FALSE(puller.pulling());
  EXPECT_TRUE(puller.Await({{1}}, wait).ok());  // nothing is begun
}

TEST(ParameterPuller, WhatItWasGivenIsTakenByThePullOfThatVersion) {
  HeldShards shards(2, 4, 100);
  ParameterPuller puller(shards.tensors(), shards.layout(), shards.parameters(), shards.calls());
  EXPECT_TRUE(puller.AllOf(0, 799).empty());
  const std::vector<uint32_t> slices = puller.AllOf(0, 800);
  ASSERT_EQ(slices.size(), 2u);
  const std::string bytes(400, 'y');
  const auto give = [&](uint64_t version) {
    TensorPull pulled;
    pulled.head.set_version(version);
    for (const uint32_t slice : slices) {
      pulled.slices.push_back({slice, F32, std::string_view(bytes), nullptr, std::nullopt, {}});
    }
    puller.Give(version, 0, std::move(pulled));
  };
  give(7);
  const auto wait = [&](const std::function<bool()>& done) {
    return shards.RunUntil([&] {
      if (done()) return true;
      EXPECT_TRUE(shards.held(0).empty());
      if (!shards.held(1).empty()) shards.AnswerFirst(1);
      return false;
    });
  };
  ASSERT_TRUE(puller.Pull({.version = 7}, wait).ok());
  const auto first_of = [&](uint32_t slice) {
    return static_cast<char>(shards.parameters().tensor(slice)[0]);
  };
  for (uint32_t tensor = 0; tensor < 4; ++tensor) {
    const bool given = std::find(slices.begin(), slices.end(), tensor) != slices.end();
    EXPECT_EQ(first_of(tensor), given ? 'y' : 'x');
  }
  // Of another version than the next pull's it is dropped.
  give(8);
  const auto answer_all = [&](const std::function<bool()>& done) {
    return shards.RunUntil([&] {
      for (uint32_t shard : {0, 1}) {
        if (!shards.held(shard).empty()) shards.AnswerFirst(shard);
      }
      return done();
    });
  };
  ASSERT_TRUE(puller.Pull({.version = 9}, answer_all).ok());
  EXPECT_EQ(first_of(slices[0]), 'x');
}

TEST(ParameterPuller, WhatItAskedForAheadIsTakenByThePullOfThatVersion) {
  HeldShards shards(1, 10, 100);
  ParameterPuller puller(shards.tensors(), shards.layout(), shards.parameters(), shards.calls(),
                         /*parallel=*/nullptr, /*group_bytes=*/400, /*calls_per_shard=*/2);
  puller.Ask(7);
  EXPECT_TRUE(shards.held(0).empty()) << "of a shard on another machine";
  puller.Ask(8);
  shards.KeepOrder(true);
  puller.Ask(7);
  puller.Ask(7);
  EXPECT_EQ(shards.held(0).size(), 2u);
  while (!shards.held(0).empty()) shards.AnswerFirst(0);
  RunAnswers(shards, 2);
  EXPECT_EQ(shards.parameters().tensor(0)[0], std::byte{0});  // not before somebody pulls
  EXPECT_TRUE(shards.held(0).empty());
  std::vector<uint32_t> asked;
  const auto wait = [&](const std::function<bool()>& done) {
    return shards.RunUntil([&] {
      if (done()) return true;
      if (!shards.held(0).empty()) asked.push_back(shards.AnswerFirst(0).front());
      return false;
    });
  };
  ASSERT_TRUE(puller.Pull({.version = 7}, wait).ok());
  EXPECT_EQ(asked, (std::vector<uint32_t>{2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(puller.TakePulledBytes(), 10 * 400u);
  EXPECT_EQ(shards.parameters().tensor(0)[0], std::byte{'x'});
}

TEST(ParameterPuller, WhatItAskedForAheadIsDroppedWhereItIsRefusedOrNotPulled) {
  HeldShards shards(1, 2, 100);
  ParameterPuller puller(shards.tensors(), shards.layout(), shards.parameters(), shards.calls());
  shards.KeepOrder(true);
  const auto wait = [&](const std::function<bool()>& done) {
    return shards.RunUntil([&] {
      if (done()) return true;
      if (!shards.held(0).empty()) shards.AnswerFirst(0);
      return false;
    });
  };
  puller.Ask(7);
  shards.RefuseFirst(0, absl::AbortedError("not yet"));
  RunAnswers(shards, 1);
  EXPECT_TRUE(puller.Pull({.version = 7}, wait).ok());
  EXPECT_EQ(puller.TakePulledBytes(), 2 * 400u);
  puller.Ask(8);
  EXPECT_TRUE(puller.Pull({.version = 9}, wait).ok());
  EXPECT_EQ(puller.TakePulledBytes(), 2 * 400u);
}

}  // namespace
}  // namespace parley
