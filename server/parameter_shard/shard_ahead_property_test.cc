// What steps of zeros leave undone of the optimizer state shows nowhere: a shard that updates
// ahead, with steps computed at any time or not at all, verdicts that were not expected and
// checkpoints in between, against one that updates when a step is decided.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/nonzero_blocks.h"
#include "server/parameter_shard/checkpoint_fixture.h"
#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_ahead_fixture.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

using Random = std::mt19937_64;

uint64_t Below(Random& random, uint64_t bound) { return random() % bound; }

JobConfig JobOf(Random& random) {
  JobConfig job = WithAhead(MeanJob());
  job.mutable_checkpoint()->set_every_steps(1 + Below(random, 5));
  const uint64_t kind = Below(random, 6);
  if (kind == 0) {
    job.mutable_optimizer()->mutable_sgd()->set_momentum(0.9);
  } else if (kind == 1) {
    *job.mutable_optimizer()->mutable_adamw() = AdamJob().optimizer().adam();
    job.mutable_optimizer()->mutable_adamw()->set_weight_decay(0.1);
  } else {
    *job.mutable_optimizer() = AdamJob().optimizer();
    if (kind == 2) job.mutable_optimizer()->mutable_adam()->set_weight_decay(0.1);
    if (kind == 3) job.mutable_optimizer()->mutable_adam()->set_amsgrad(true);
  }
  return job;
}

class TwoShards {
 public:
  explicit TwoShards(uint64_t seed)
      : random_(seed),
        job_(JobOf(random_)),
        elements_(3 * kBlockElements - 60 + Below(random_, 120)),
        view_(MakeView({.tensors = {{"w", elements_, false, Below(random_, 3) == 0 ? F64 : F32}}})),
        ahead_(job_, view_, /*start=*/true, Ahead()),
        plain_(WithAhead(job_, false), view_) {}

  ~TwoShards() { Join(); }

  void Step(uint64_t step) {
    const float weight = step % 7 == 3 && Below(random_, 2) == 0 ? 2 : 1;
    RunSome();
    LookAt(step - 1);
    std::vector<uint64_t> slices;
    for (const Slice& slice : view_.slices()) slices.push_back(slice.id());
    for (const uint64_t id : slices) {
      const Slice& slice = view_.slices(static_cast<int>(id));
      const Floats gradient = Gradient(step, slice.end() - slice.begin());
      ASSERT_TRUE(ahead_.Push(Request(ahead_, step, id, gradient)).ok());
      ASSERT_TRUE(plain_.Push(Request(plain_, step, id, gradient)).ok());
      RunSome();
    }
    LookAt(step - 1);
    for (ShardCluster* const cluster : {&ahead_, &plain_}) {
      cluster->Complete(cluster->MakeComplete(0, step, 0, weight));
      ASSERT_EQ(cluster->leader().version(), step);
    }
    MakeRoom(ahead_.leader());
    FollowCheckpoint();
    ASSERT_TRUE(BytesOf(ahead_.Values("w", step)) == BytesOf(plain_.Values("w", step)));
    LookAt(step);
  }

  void Check() {
    Join();
    for (const Look& look : looks_) {
      ASSERT_TRUE(AsLoaded(look.snapshot) == look.expected) << "of version " << look.version;
    }
  }
  uint64_t checkpoints() const { return checkpoints_; }
  uint64_t taken() { return ahead_.leader().counts().ahead_taken; }

 private:
  struct Look {
    uint64_t version;
    std::vector<SliceSnapshot> snapshot;
    LoadedSlices expected;
  };

  static PushRequest Request(const ShardCluster& cluster, uint64_t step, uint64_t slice,
                             const Floats& gradient) {
    return cluster.MakePush(0, step, 0, static_cast<uint32_t>(slice), gradient);
  }

  // Of few rows, mostly; for some steps in turn of none, so that much is owed.
  Floats Gradient(uint64_t step, uint64_t elements) {
    Floats gradient(elements, 0);
    const uint64_t kind = Below(random_, 12);
    const uint64_t rows = elements / kZeroBlock + 1;
    const uint64_t filled = step < 3 || kind == 0 ? rows : step % 20 < 9 ? 0 : Below(random_, 5);
    for (uint64_t i = 0; i < filled; ++i) {
      const uint64_t row = filled == rows ? i : Below(random_, rows);
      const uint64_t begin = std::min(elements, row * kZeroBlock);
      const uint64_t end = std::min(elements, begin + 1 + Below(random_, kZeroBlock));
      for (uint64_t at = begin; at < end; ++at) {
        const auto whole = static_cast<float>(Below(random_, 2001)) - 1000;
        gradient[at] = whole == 0 ? -0.0f : whole / 100;
      }
    }
    return gradient;
  }

  // Some of what can be computed now is, here or on other threads, some later, or never.
  void RunSome() {
    for (auto& update : ahead_.leader().TakeAhead()) waiting_.push_back(std::move(update));
    std::shuffle(waiting_.begin(), waiting_.end(), random_);
    for (uint64_t n = Below(random_, waiting_.size() + 1); n > 0; --n) {
      const std::shared_ptr<AheadUpdate> update = std::move(waiting_.back());
      waiting_.pop_back();
      if (Below(random_, 3) == 0) {
        threads_.emplace_back([update] { update->Run(); });
      } else {
        update->Run();
      }
    }
  }

  // At the state, as a checkpoint does, which may keep it for a while.
  void LookAt(uint64_t version) {
    while (!looks_.empty() && Below(random_, 3) == 0) {
      const Look& look = looks_.back();
      ASSERT_TRUE(AsLoaded(look.snapshot) == look.expected) << "of version " << look.version;
      looks_.pop_back();
    }
    if (Below(random_, 8) != 0) return;
    auto snapshot = ahead_.leader().Snapshot(version);
    const auto expected = plain_.leader().Snapshot(version);
    ASSERT_TRUE(snapshot.ok() && expected.ok()) << snapshot.status() << expected.status();
    looks_.push_back({version, *std::move(snapshot), AsLoaded(*expected)});
  }

  // One that the step leader has marked: it is kept as it was, until it has ended.
  void FollowCheckpoint() {
    const uint64_t marked = ahead_.leader().Progress().mark().version();
    if (marked == ended_) return;
    const auto kept = ahead_.leader().Snapshot(marked);
    const auto expected = plain_.leader().Snapshot(marked);
    ASSERT_TRUE(kept.ok() && expected.ok()) << kept.status() << expected.status();
    ASSERT_TRUE(AsLoaded(*kept) == AsLoaded(*expected)) << "the checkpoint of version " << marked;
    if (Below(random_, 3) != 0) return;
    ended_ = marked;
    Replies replies;
    for (ShardCluster* const cluster : {&ahead_, &plain_}) {
      cluster->leader().FollowCheckpoints(marked, marked, cluster->now(), replies);
    }
    ++checkpoints_;
  }

  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  Random random_;
  const JobConfig job_;
  const uint64_t elements_;
  const ClusterView view_;
  ShardCluster ahead_;
  ShardCluster plain_;
  std::vector<std::shared_ptr<AheadUpdate>> waiting_;
  std::vector<std::thread> threads_;
  std::vector<Look> looks_;
  uint64_t ended_ = 0;  // of checkpoints
  uint64_t checkpoints_ = 0;
};

TEST(ShardAheadPropertyTest, WhatIsOwedShowsNowhere) {
  uint64_t taken = 0;
  uint64_t checkpoints = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    TwoShards shards(seed);
    for (uint64_t step = 1; step <= 45; ++step) {
      ASSERT_NO_FATAL_FAILURE(shards.Step(step)) << "step " << step;
    }
    ASSERT_NO_FATAL_FAILURE(shards.Check());
    taken += shards.taken();
    checkpoints += shards.checkpoints();
  }
  EXPECT_GT(taken, 1000u);
  EXPECT_GT(checkpoints, 100u);
}

}  // namespace
}  // namespace parley::testing
