// Properties of the shards' core under random interleavings; the seed is printed with each failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

using Random = std::mt19937_64;

uint64_t Below(Random& random, uint64_t bound) { return random() % bound; }

// Workers and shards whose messages come in any order, late, and more than once; one worker is
// removed half-way. Gradients are integers, so that any order of sums is exact.
class Storm {
 public:
  Storm(uint64_t seed, bool deterministic, bool ahead = false)
      : random_(seed),
        ahead_mode_(ahead),
        options_{.tensors = {{"a", 5}, {"b", 3}, {"c", 2}, {"d", 1}},
                 .shards = 1 + static_cast<uint32_t>(Below(random_, 3)),
                 .workers = 2 + static_cast<uint32_t>(Below(random_, 3)),
                 .placement_seed = 1 + seed},
        cluster_(Job(random_, deterministic, ahead), MakeView(options_), /*start=*/true,
                 Resources()),
        views_(cluster_.size(), 1),
        outbox_(cluster_.size()),
        workers_(options_.workers) {
    for (uint32_t w = 0; w < options_.workers; ++w) Refill(w);
  }

  const ShardCounts& counts() { return cluster_.leader().counts(); }

  void Run() {
    const uint64_t remove_at = Below(random_, 400);
    for (uint64_t event = 0; event < 100'000; ++event) {
      if (event == remove_at) {
        removed_ = true;
        view_ = cluster_.view();
        view_.set_view_epoch(2);
        view_.mutable_contributors()->RemoveLast();
        view_.mutable_members()->RemoveLast();
      }
      const uint64_t kind = Below(random_, 10);
      AheadEvent();
      if (kind < 5) {
        WorkerEvent(static_cast<uint32_t>(Below(random_, options_.workers)));
      } else if (kind < 8) {
        MessageEvent(static_cast<uint32_t>(Below(random_, cluster_.size())));
      } else if (kind < 9) {
        ReplayEvent();
      } else if (removed_) {
        ViewEvent(static_cast<uint32_t>(Below(random_, cluster_.size())));
      }
      if (::testing::Test::HasFatalFailure() || Done()) break;
    }
    ASSERT_TRUE(Done()) << "no end: step " << cluster_.leader().version();
    Check();
  }

 private:
  static constexpr uint64_t kSteps = 12;

  struct Worker {
    uint64_t step = 1;
    uint32_t attempt = 0;
    std::vector<uint32_t> to_push;
    ShardCluster::CompleteResult verdict;
  };

  static ShardResources Resources() {
    ShardResources resources;
    resources.ahead = [](const std::function<void()>&) {};
    resources.ahead_from = 1;
    return resources;
  }

  static JobConfig Job(Random& random, bool deterministic, bool ahead) {
    JobConfig job = SummingJob();
    job.mutable_consistency()->mutable_sync()->set_deterministic(deterministic);
    job.mutable_consistency()->mutable_sync()->set_update_ahead(ahead);
    if (ahead) return job;
    // The long way too, with norms; never clipping.
    if (Below(random, 2) == 0) job.mutable_optimizer()->set_clip_norm(1e30);
    return job;
  }

  float GradientOf(uint32_t worker, uint64_t step, uint32_t slice) const {
    // Of some slices for a few steps, so that what is expected to be zero is, or is not.
    if (ahead_mode_ && (step / 3 + slice) % 3 != 0) return 0;
    return static_cast<float>((worker * 7919 + step * 104729 + slice * 31) % 201) - 100;
  }

  void Refill(uint32_t w) {
    Worker& worker = workers_[w];
    worker.to_push.clear();
    for (const Slice& slice : cluster_.view().slices()) worker.to_push.push_back(slice.id());
    std::shuffle(worker.to_push.begin(), worker.to_push.end(), random_);
    worker.verdict = nullptr;
  }

  void WorkerEvent(uint32_t w) {
    Worker& worker = workers_[w];
    if (worker.step > kSteps) return;
    if (worker.verdict != nullptr) {
      if (!worker.verdict->has_value() || !(*worker.verdict)->ok()) return;
      const Verdict verdict = (**worker.verdict)->verdict();
      if (verdict.outcome() == Verdict::RETRY) {
        ASSERT_EQ(verdict.attempt(), worker.attempt);
        ++worker.attempt;
      } else {
        ++worker.step;
        worker.attempt = 0;
      }
      return Refill(w);
    }
    if (worker.to_push.empty()) {
      worker.verdict = cluster_.Complete(cluster_.MakeComplete(w, worker.step, worker.attempt));
      return;
    }
    const uint32_t slice = worker.to_push.back();
    const Slice& spec = cluster_.view().slices(static_cast<int>(slice));
    const PushRequest push = cluster_.MakePush(
        w, worker.step, worker.attempt, slice,
        std::vector<float>(spec.end() - spec.begin(), GradientOf(w, worker.step, slice)));
    const auto reply = cluster_.Push(push);
    sent_.push_back(push);
    if (absl::IsUnavailable(reply.status())) return;  // again later
    if (absl::IsAborted(reply.status())) return;      // removed
    ASSERT_EQ(reply.status(), absl::OkStatus());
    worker.to_push.pop_back();
  }

  // Once a message was sent and acknowledged, sending it again never adds anything.
  void ReplayEvent() {
    if (sent_.empty()) return;
    const PushRequest& push = sent_[Below(random_, sent_.size())];
    const auto& slice = cluster_.view().slices(static_cast<int>(push.slices(0).slice()));
    const Worker& worker = workers_[push.contributor()];
    const bool not_acknowledged =
        push.step() == worker.step && push.attempt() == worker.attempt &&
        std::count(worker.to_push.begin(), worker.to_push.end(), slice.id()) != 0;
    const auto reply = cluster_.Push(push);
    if (reply.ok() && !not_acknowledged) {
      ASSERT_NE(reply->outcomes(0), ADDED);
    }
  }

  void MessageEvent(uint32_t shard) {
    for (ToShard& message : cluster_.leader().TakeOutbox()) {
      outbox_[message.shard].push_back(std::move(message));
    }
    std::deque<ToShard>& queue = outbox_[shard];
    if (queue.empty()) return;
    const ToShard message = queue.front();
    Replies replies;
    absl::Status status;
    if (const auto* close = std::get_if<CloseRequest>(&message.request)) {
      auto reply = cluster_.shard(shard).Close(*close);
      status = reply.status();
      if (reply.ok()) {
        cluster_.leader().OnCloseReply(shard, *close, *reply, cluster_.now(), replies);
      }
      // A repetition whose first answer was lost may come when all is decided.
      if (absl::IsAborted(status)) status = absl::OkStatus();
    } else {
      status = cluster_.shard(shard)
                   .Decide(std::get<DecideRequest>(message.request), cluster_.now(), replies)
                   .status();
    }
    if (absl::IsFailedPrecondition(status)) return;  // it has to get the view first
    ASSERT_EQ(status, absl::OkStatus());
    if (Below(random_, 4) != 0) queue.pop_front();
  }

  // What can be computed ahead is, sooner or later.
  void AheadEvent() {
    for (uint32_t shard = 0; shard < cluster_.size(); ++shard) {
      if (const auto reservation = cluster_.shard(shard).TakeReservation()) reservation();
      for (auto& update : cluster_.shard(shard).TakeAhead()) ahead_.push_back(std::move(update));
    }
    if (ahead_.empty() || Below(random_, 2) == 0) return;
    std::swap(ahead_[Below(random_, ahead_.size())], ahead_.back());
    ahead_.back()->Run();
    ahead_.pop_back();
  }

  void ViewEvent(uint32_t shard) {
    if (views_[shard] == 2) return;
    views_[shard] = 2;
    Replies replies;
    ASSERT_EQ(cluster_.shard(shard).SetView(view_, cluster_.now(), replies), absl::OkStatus());
  }

  bool Done() {
    for (uint32_t shard = 0; shard < cluster_.size(); ++shard) {
      if (cluster_.shard(shard).error().has_value()) return true;
      if (cluster_.shard(shard).version() < kSteps) return false;
    }
    return true;
  }

  void Check() {
    for (uint32_t shard = 0; shard < cluster_.size(); ++shard) {
      ASSERT_FALSE(cluster_.shard(shard).error().has_value()) << *cluster_.shard(shard).error();
    }
    std::map<uint32_t, float> expected;
    uint64_t decided = 0;
    for (const Verdict& verdict : cluster_.reported()) {
      if (verdict.outcome() == Verdict::RETRY) continue;
      ASSERT_EQ(verdict.step(), ++decided);
      for (const Share& share : verdict.shares()) {
        for (const Slice& slice : cluster_.view().slices()) {
          expected[slice.id()] -= GradientOf(share.contributor(), verdict.step(), slice.id());
        }
      }
    }
    ASSERT_EQ(decided, kSteps);
    for (const Slice& slice : cluster_.view().slices()) {
      const std::string& name = cluster_.view().tensors(static_cast<int>(slice.tensor())).name();
      for (const float value : cluster_.Values(name, kSteps)) {
        ASSERT_EQ(value, expected[slice.id()]) << name;
      }
    }
  }

  Random random_;
  const bool ahead_mode_;
  ViewOptions options_;
  ShardCluster cluster_;
  ClusterView view_;
  bool removed_ = false;
  std::vector<uint64_t> views_;
  std::vector<std::deque<ToShard>> outbox_;
  std::vector<Worker> workers_;
  std::vector<PushRequest> sent_;
  std::vector<std::shared_ptr<AheadUpdate>> ahead_;
};

TEST(ShardPropertyTest, WhateverTheInterleavingEachCountedGradientIsInEverySliceOnce) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Storm(seed, /*deterministic=*/false).Run();
    if (HasFatalFailure()) return;
  }
}

TEST(ShardPropertyTest, TheSameWhereContributionsAreKeptApart) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Storm(seed, /*deterministic=*/true).Run();
    if (HasFatalFailure()) return;
  }
}

TEST(ShardPropertyTest, TheSameWhereUpdatesAreComputedAhead) {
  uint64_t taken = 0;
  uint64_t dropped = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Storm storm(seed, /*deterministic=*/seed % 2 == 0, /*ahead=*/true);
    storm.Run();
    if (HasFatalFailure()) return;
    taken += storm.counts().ahead_taken;
    dropped += storm.counts().ahead_dropped;
  }
  EXPECT_GT(taken, 1000u);
  EXPECT_GT(dropped, 100u);
}

// --- Bitwise
// --------------------------------------------------------------------------------------

struct Trained {
  std::vector<float> values;
  std::vector<double> norms;
};

// Three workers train two tensors for a few steps; pushes come in an order of the seed's.
Trained Train(JobConfig job, uint32_t shards, uint64_t seed) {
  const ViewOptions options{.tensors = {{"layer.weight", 3 * kBlockElements + 1234}, {"bias", 777}},
                            .shards = shards,
                            .workers = 3,
                            .placement_seed = seed};
  ShardCluster cluster(job, MakeView(options));
  Random order(seed);
  Trained trained;
  for (uint64_t step = 1; step <= 3; ++step) {
    std::vector<PushRequest> pushes;
    for (uint32_t worker = 0; worker < 3; ++worker) {
      for (const Slice& slice : cluster.view().slices()) {
        std::vector<float> gradient;
        for (uint64_t i = slice.begin(); i < slice.end(); ++i) {
          // Of the place in the tensor alone, whatever the cut.
          const uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15u ^
                                 (worker + 3) * step * 0xbf58476d1ce4e5b9u ^ slice.tensor();
          gradient.push_back(static_cast<float>(static_cast<int64_t>(mixed * 0x94d049bb133111ebu)) *
                             1e-19f);
        }
        pushes.push_back(cluster.MakePush(worker, step, 0, slice.id(), gradient));
      }
    }
    std::shuffle(pushes.begin(), pushes.end(), order);
    for (const PushRequest& push : pushes) EXPECT_EQ(cluster.Push(push).status(), absl::OkStatus());
    std::vector<uint32_t> workers = {0, 1, 2};
    std::shuffle(workers.begin(), workers.end(), order);
    for (const uint32_t worker : workers) {
      cluster.Complete(cluster.MakeComplete(worker, step, 0, 1 - 0.25 * worker));
    }
    cluster.Deliver();
  }
  for (const char* name : {"layer.weight", "bias"}) {
    const std::vector<float> values = cluster.Values(name, 3);
    trained.values.insert(trained.values.end(), values.begin(), values.end());
  }
  for (const Verdict& verdict : cluster.reported())
    trained.norms.push_back(verdict.gradient_norm());
  return trained;
}

JobConfig DeterministicAdam() {
  JobConfig job = MeanJob();
  Adam* adam = job.mutable_optimizer()->mutable_adam();
  adam->set_rate(0.01);
  adam->set_beta1(0.9);
  adam->set_beta2(0.999);
  adam->set_epsilon(1e-8);
  job.mutable_optimizer()->set_clip_norm(0.5);
  job.mutable_consistency()->mutable_sync()->set_deterministic(true);
  return job;
}

TEST(ShardPropertyTest, DeterministicResultsDoNotDependOnOrderOrShards) {
  const Trained reference = Train(DeterministicAdam(), 1, 1);
  ASSERT_GT(reference.norms[0], 0.5);  // it clips
  for (uint32_t shards = 1; shards <= 4; ++shards) {
    for (uint64_t seed = 2; seed <= 5; ++seed) {
      const Trained other = Train(DeterministicAdam(), shards, seed);
      EXPECT_EQ(other.norms, reference.norms);
      ASSERT_EQ(std::memcmp(other.values.data(), reference.values.data(),
                            reference.values.size() * sizeof(float)),
                0)
          << shards << " shards, seed " << seed;
    }
  }
}

}  // namespace
}  // namespace parley::testing
