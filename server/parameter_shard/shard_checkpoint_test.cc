// The version that a shard keeps for a checkpoint while it goes on.
#include <gtest/gtest.h>

#include <functional>

#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

using absl::StatusCode;

class ShardCheckpointTest : public ::testing::Test {
 protected:
  static JobConfig Job(uint64_t every_steps) {
    JobConfig job = SummingJob();
    job.mutable_optimizer()->mutable_sgd()->set_momentum(0.5);
    job.mutable_checkpoint()->set_every_steps(every_steps);
    job.mutable_checkpoint()->set_at_end(true);
    job.set_steps(7);
    return job;
  }

  static ClusterView View(uint32_t shards) {
    ViewOptions options;
    options.tensors = {{"w", 4}, {"b", 3}};
    options.shards = shards;
    return MakeView(options);
  }

  explicit ShardCheckpointTest(uint64_t every_steps = 2, uint32_t shards = 2)
      : cluster_(Job(every_steps), View(shards)) {}

  void Step() {
    const uint64_t step = cluster_.leader().version() + 1;
    cluster_.PushAll(0, step, 0, static_cast<float>(step));
    const auto result = cluster_.Complete(cluster_.MakeComplete(0, step, 0));
    cluster_.Deliver();
    ASSERT_EQ(VerdictOf(result).step(), step);
    for (uint32_t shard = 0; shard < cluster_.size(); ++shard) {
      ASSERT_EQ(cluster_.shard(shard).version(), step);
    }
  }

  void Follow(uint64_t asked, uint64_t ended) {
    for (uint32_t shard = 0; shard < cluster_.size(); ++shard) {
      Replies replies;
      cluster_.shard(shard).FollowCheckpoints(asked, ended, cluster_.now(), replies);
    }
  }

  // Values and momentum of the first slice of a shard; empty if the version is not there.
  std::vector<Floats> KeptBy(uint32_t shard, uint64_t version) {
    const auto slices = cluster_.shard(shard).Snapshot(version);
    if (!slices.ok()) return {};
    const SliceSnapshot& slice = slices->at(0);
    std::vector<Floats> kept;
    const auto values = slice.values->as<float>();
    kept.emplace_back(values.begin(), values.end());
    const auto* state =
        reinterpret_cast<const float*>(slice.state_buffer->data() + slice.state.at(0).offset);
    kept.emplace_back(state, state + values.size());
    kept.push_back({static_cast<float>(slice.optimizer_steps)});
    return kept;
  }

  ShardCluster cluster_;
};

// A second set of values and momentum costs as long as a step of a large model: not under the lock,
// and not before the first step's own memory is there.
TEST_F(ShardCheckpointTest, MemoryForTheFirstOneIsAskedForOnceAfterTheFirstStep) {
  EXPECT_FALSE(cluster_.leader().TakeReservation());
  Step();
  const std::function<void()> reservation = cluster_.leader().TakeReservation();
  ASSERT_TRUE(reservation);
  reservation();
  EXPECT_FALSE(cluster_.leader().TakeReservation());
}

TEST_F(ShardCheckpointTest, AllKeepTheMarkedVersionAsItWas) {
  Step();
  EXPECT_EQ(cluster_.leader().Progress().mark().version(), 0u);
  Step();
  EXPECT_EQ(cluster_.leader().Progress().mark().version(), 2u);
  EXPECT_TRUE(cluster_.reported().back().checkpoint());
  std::vector<std::vector<Floats>> then;
  for (const uint32_t shard : {0, 1}) {
    then.push_back(KeptBy(shard, 2));
    ASSERT_EQ(then.back().size(), 3u);
    EXPECT_EQ(then.back()[1][0], 2.5f) << "momentum: 0.5 * 1 + 2";
    EXPECT_EQ(then.back()[2][0], 2.0f);
  }
  for (const uint32_t shard : {0, 1}) {
    EXPECT_EQ(cluster_.shard(shard).counts().copied_bytes, 0u);
  }
  for (int i = 0; i < 3; ++i) Step();
  for (const uint32_t shard : {0, 1}) {
    // Values and momentum of each slice, once, though three steps have changed them.
    uint64_t bytes = 0;
    const auto slices = cluster_.shard(shard).Snapshot(2);
    ASSERT_TRUE(slices.ok());
    for (const SliceSnapshot& slice : *slices) {
      bytes += slice.values->size() + slice.state_buffer->size();
    }
    EXPECT_EQ(cluster_.shard(shard).counts().copied_bytes, bytes);
  }
  for (const uint32_t shard : {0, 1}) {
    EXPECT_EQ(KeptBy(shard, 2), then[shard]);
    EXPECT_NE(KeptBy(shard, 5), then[shard]);
    EXPECT_TRUE(KeptBy(shard, 4).empty()) << "it was due while 2 was being written";
    EXPECT_EQ(cluster_.shard(shard).Snapshot(3).status().code(), StatusCode::kAborted);
  }
  // It is whole, or was given up.
  Follow(0, 2);
  for (const uint32_t shard : {0, 1}) EXPECT_TRUE(KeptBy(shard, 2).empty());
  Step();
  EXPECT_EQ(cluster_.leader().Progress().mark().version(), 6u);
  for (const uint32_t shard : {0, 1}) EXPECT_FALSE(KeptBy(shard, 6).empty());
}

TEST_F(ShardCheckpointTest, WhoeverWritesKeepsItLonger) {
  for (int i = 0; i < 2; ++i) Step();
  const auto slices = cluster_.shard(1).Snapshot(2);
  ASSERT_TRUE(slices.ok());
  const Floats then(slices->at(0).values->as<float>().begin(),
                    slices->at(0).values->as<float>().end());
  Follow(0, 2);
  for (int i = 0; i < 3; ++i) Step();
  EXPECT_EQ(
      Floats(slices->at(0).values->as<float>().begin(), slices->at(0).values->as<float>().end()),
      then);
}

TEST_F(ShardCheckpointTest, TheLastVersionNeedsNoMark) {
  for (int i = 0; i < 6; ++i) {
    Step();
    Follow(0, cluster_.leader().Progress().mark().version());
  }
  Follow(1, 6);
  Step();
  EXPECT_EQ(cluster_.leader().Progress().mark().version(), 6u);
  EXPECT_FALSE(cluster_.reported().back().checkpoint());
}

class MoreShardsThanSlicesTest : public ShardCheckpointTest {
 protected:
  MoreShardsThanSlicesTest() : ShardCheckpointTest(2, 3) {}
};

TEST_F(MoreShardsThanSlicesTest, TheOneWithoutSlicesKeepsTheMarkedVersionToo) {
  for (int i = 0; i < 3; ++i) Step();
  for (const uint32_t shard : {0, 1, 2}) {
    const auto slices = cluster_.shard(shard).Snapshot(2);
    ASSERT_EQ(slices.status(), absl::OkStatus()) << shard;
    EXPECT_EQ(slices->size(), shard == 2 ? 0u : 1u);
    EXPECT_EQ(cluster_.shard(shard).Snapshot(0).status().code(), StatusCode::kAborted);
  }
  Follow(0, 2);
  EXPECT_EQ(cluster_.shard(2).Snapshot(2).status().code(), StatusCode::kAborted);
}

class AskedForTest : public ShardCheckpointTest {
 protected:
  AskedForTest() : ShardCheckpointTest(0) {}
};

TEST_F(AskedForTest, TheNextVersionIsMarked) {
  Step();
  Follow(1, 0);
  Step();
  EXPECT_EQ(cluster_.leader().Progress().mark().version(), 2u);
  Step();
  EXPECT_EQ(cluster_.leader().Progress().mark().version(), 2u);
  for (const uint32_t shard : {0, 1}) EXPECT_FALSE(KeptBy(shard, 2).empty());
}

}  // namespace
}  // namespace parley::testing
