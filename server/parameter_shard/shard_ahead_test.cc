// Updates that are computed before their step is decided.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/nonzero_blocks.h"
#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_ahead_fixture.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

ViewOptions TwoWorkers() { return {.tensors = {{"w", 4}, {"v", 3}}, .workers = 2}; }

class AheadTest : public ::testing::Test {
 protected:
  explicit AheadTest(const JobConfig& job = SummingJob())
      : cluster_(WithAhead(job), MakeView(TwoWorkers()), /*start=*/true, Ahead()) {}

  Shard& shard() { return cluster_.leader(); }

  void PushBoth(uint64_t step, uint32_t attempt = 0) {
    cluster_.PushAll(0, step, attempt, 1);
    cluster_.PushAll(1, step, attempt, 2);
  }
  void CompleteBoth(uint64_t step, uint32_t attempt = 0) {
    for (const uint32_t worker : {0, 1}) {
      cluster_.Complete(cluster_.MakeComplete(worker, step, attempt));
    }
    ASSERT_EQ(shard().version(), step) << shard().error().value_or("");
  }
  // Nothing is computed ahead in it: nobody knows yet what verdicts are like.
  void FirstStep() {
    PushBoth(1);
    EXPECT_TRUE(shard().TakeAhead().empty());
    CompleteBoth(1);
    MakeRoom(shard());
  }
  void RunAll() {
    for (const auto& update : shard().TakeAhead()) update->Run();
  }
  const void* MemoryAt(uint64_t version) {
    const auto pulled = cluster_.Pull(0, 0, version);
    return (**pulled)->slices[0].values->data();
  }

  ShardCluster cluster_;
};

TEST_F(AheadTest, TheVerdictTakesWhatWasComputedBesideTheOldValues) {
  FirstStep();
  const void* const first = MemoryAt(1);
  const void* second = nullptr;
  for (uint64_t step = 2; step <= 5; ++step) {
    PushBoth(step);
    const auto updates = shard().TakeAhead();
    EXPECT_EQ(updates.size(), 2u);
    for (const auto& update : updates) update->Run();
    EXPECT_EQ(cluster_.Values("w", step - 1), Floats(4, -3.0F * (step - 1)));
    CompleteBoth(step);
    EXPECT_EQ(cluster_.Values("w", step), Floats(4, -3.0F * step));
    EXPECT_EQ(cluster_.Values("v", step), Floats(3, -3.0F * step));
    // There and back.
    if (step == 2) second = MemoryAt(2);
    EXPECT_EQ(MemoryAt(step), step % 2 == 0 ? second : first);
  }
  EXPECT_NE(first, second);
  EXPECT_EQ(shard().counts().ahead_taken, 8u);
  EXPECT_EQ(shard().counts().ahead_dropped, 0u);
}

// Its memory would be taken page by page while a step waits for it.
TEST_F(AheadTest, NothingIsComputedAheadBeforeThereIsRoomForIt) {
  PushBoth(1);
  CompleteBoth(1);
  PushBoth(2);
  EXPECT_TRUE(shard().TakeAhead().empty());
  CompleteBoth(2);
  MakeRoom(shard());
  PushBoth(3);
  EXPECT_EQ(shard().TakeAhead().size(), 2u);
}

TEST_F(AheadTest, ASliceWaitsForAllThatAreToSendSomething) {
  FirstStep();
  cluster_.PushAll(1, 2, 0, 2);
  EXPECT_TRUE(shard().TakeAhead().empty());
  ASSERT_TRUE(cluster_.Push(cluster_.MakePush(0, 2, 0, 1, Floats(3, 1))).ok());
  EXPECT_EQ(shard().TakeAhead().size(), 1u);
}

TEST_F(AheadTest, WhatHasNotBegunWhenTheVerdictComesNeverDoes) {
  FirstStep();
  PushBoth(2);
  const auto updates = shard().TakeAhead();
  ASSERT_EQ(updates.size(), 2u);
  updates[0]->Run();
  CompleteBoth(2);
  EXPECT_EQ(shard().counts().ahead_taken, 1u);
  EXPECT_EQ(shard().counts().ahead_dropped, 1u);
  PushBoth(3);
  updates[1]->Run();
  EXPECT_FALSE(updates[1]->HasEnded());
  RunAll();
  CompleteBoth(3);
  EXPECT_EQ(cluster_.Values("w", 3), Floats(4, -9));
  EXPECT_EQ(cluster_.Values("v", 3), Floats(3, -9));
}

TEST_F(AheadTest, AReaderKeepsTheVersionThatItReads) {
  FirstStep();
  std::vector<PinnedBuffer> held;
  for (uint64_t step = 2; step <= 6; ++step) {
    held.push_back((**cluster_.Pull(0, 0, step - 1))->slices[0].values);
    PushBoth(step);
    RunAll();
    CompleteBoth(step);
  }
  for (size_t i = 0; i < held.size(); ++i) {
    EXPECT_EQ(held[i]->as<float>()[3], -3.0F * static_cast<float>(i + 1));
  }
  EXPECT_EQ(shard().counts().copied_bytes, 0u);
}

TEST_F(AheadTest, AnotherAttemptIsWithoutWhatTheFirstHad) {
  FirstStep();
  PushBoth(2);
  RunAll();
  cluster_.SetView(Without(cluster_.view(), 1));
  ASSERT_EQ(shard().attempt(), 1u);
  cluster_.PushAll(0, 2, 1, 1);
  RunAll();
  cluster_.Complete(cluster_.MakeComplete(0, 2, 1));
  EXPECT_EQ(cluster_.Values("w", 2), Floats(4, -4));
  EXPECT_EQ(shard().counts().ahead_taken, 0u);
}

// To come for each by itself would take longer than to take it.
TEST(ShardAheadTest, SlicesThatWereDoneAheadShareAPiece) {
  constexpr int kSlices = 64;
  constexpr size_t kDone = 40;
  ViewOptions options;
  options.tensors.clear();
  options.slice_elements = 1 << 14;
  for (int i = 0; i < kSlices; ++i) options.tensors.push_back({absl::StrCat("t", i), 1 << 14});
  ShardResources resources = Ahead();
  resources.later = [](const std::function<void()>&) { ADD_FAILURE() << "a core has no threads"; };
  resources.later_from = 1;
  ShardCluster cluster(WithAhead(SummingJob()), MakeView(options), /*start=*/true, resources);
  std::vector<size_t> slices;
  for (const uint64_t step : {1, 2}) {
    cluster.PushAll(0, step, 0, 1);
    const auto updates = cluster.leader().TakeAhead();
    ASSERT_EQ(updates.size(), step == 1 ? 0u : kSlices);
    for (size_t i = 0; i < updates.size() && i < kDone; ++i) updates[i]->Run();
    cluster.Complete(cluster.MakeComplete(0, step, 0));
    const auto work = cluster.leader().TakeWork();
    ASSERT_NE(work, nullptr);
    slices.clear();
    for (size_t piece = 0, done = 0; piece < work->pieces(); ++piece) {
      const absl::Status status = work->Run(piece);
      Replies replies;
      cluster.leader().OnUpdated(piece, status, replies);
      size_t now = 0;
      while (now < kSlices && cluster.Pull(0, static_cast<uint32_t>(now), step)->has_value()) {
        ++now;
      }
      slices.push_back(now - done);
      done = now;
    }
    MakeRoom(cluster.leader());
  }
  EXPECT_EQ(slices, (std::vector<size_t>{kDone, 2, 4, 8, 10}));
  EXPECT_EQ(cluster.leader().counts().ahead_taken, kDone);
  EXPECT_EQ(cluster.Values("t0", 2), Floats(1 << 14, -2));
  EXPECT_EQ(cluster.Values("t63", 2), Floats(1 << 14, -2));
}

// Begun with both, and decided with one of them: they are kept apart, so nothing is done again.
TEST(ShardAheadTest, AVerdictWithoutOneOfThemTakesNothing) {
  JobConfig job = WithAhead(SummingJob());
  job.mutable_consistency()->mutable_sync()->set_deterministic(true);
  ShardCluster cluster(job, MakeView(TwoWorkers()), /*start=*/true, Ahead());
  for (uint64_t step = 1; step <= 2; ++step) {
    cluster.PushAll(0, step, 0, 1);
    cluster.PushAll(1, step, 0, 2);
    for (const auto& update : cluster.leader().TakeAhead()) update->Run();
    if (step == 2) cluster.SetView(Without(cluster.view(), 1));
    cluster.Complete(cluster.MakeComplete(0, step, 0));
    if (step == 1) cluster.Complete(cluster.MakeComplete(1, step, 0));
    ASSERT_EQ(cluster.leader().version(), step);
    MakeRoom(cluster.leader());
  }
  EXPECT_EQ(cluster.Values("w", 2), Floats(4, -4));
  EXPECT_EQ(cluster.leader().counts().ahead_taken, 0u);
  EXPECT_EQ(cluster.leader().counts().ahead_dropped, 2u);
}

// The last step of a data epoch is the only one that is not what was expected; a new weight is
// expected when it has come twice.
TEST(ShardAheadTest, AnotherWeightThanThatOfOtherStepsTakesNothing) {
  ShardCluster cluster(WithAhead(MeanJob()), MakeView(TwoWorkers()), /*start=*/true, Ahead());
  const double weights[] = {1, 1, 0.5, 1, 0.5, 0.5, 0.5};
  const bool taken[] = {false, true, false, true, false, false, true};
  float expected = 0;
  uint64_t count = 0;
  for (uint64_t step = 1; step <= 7; ++step) {
    cluster.PushAll(0, step, 0, 2);
    cluster.PushAll(1, step, 0, 4);
    for (const auto& update : cluster.leader().TakeAhead()) update->Run();
    const double weight = weights[step - 1];
    cluster.Complete(cluster.MakeComplete(0, step, 0, weight));
    cluster.Complete(cluster.MakeComplete(1, step, 0, weight));
    MakeRoom(cluster.leader());
    expected -= static_cast<float>(6 / (2 * weight));
    EXPECT_EQ(cluster.Values("w", step), Floats(4, expected));
    count += taken[step - 1] ? 2 : 0;
    EXPECT_EQ(cluster.leader().counts().ahead_taken, count) << "in step " << step;
  }
}

TEST(ShardAheadTest, ASkippedStepTakesNothing) {
  ShardCluster cluster(WithAhead(SummingJob()), MakeView({.tensors = {{"w", 4}}, .workers = 1}),
                       /*start=*/true, Ahead());
  cluster.PushAll(0, 1, 0, 1);
  cluster.Complete(cluster.MakeComplete(0, 1, 0));
  MakeRoom(cluster.leader());
  cluster.PushAll(0, 2, 0, 1);
  for (const auto& update : cluster.leader().TakeAhead()) update->Run();
  cluster.SetView(Without(cluster.view(), 0));
  ASSERT_EQ(cluster.leader().version(), 2u);  // nobody is left
  EXPECT_EQ(cluster.leader().counts().ahead_dropped, 1u);
}

// An update that runs for longer than its step, or its job, has memory of its own.
TEST(ShardAheadTest, OneThatIsLeftAloneWritesWhereNobodyReads) {
  std::vector<std::shared_ptr<AheadUpdate>> left;
  {
    ShardCluster cluster(WithAhead(SummingJob()), MakeView({.tensors = {{"w", 4}}, .workers = 1}),
                         /*start=*/true, Ahead());
    for (uint64_t step = 1; step <= 3; ++step) {
      cluster.PushAll(0, step, 0, 1);
      for (auto& update : cluster.leader().TakeAhead()) left.push_back(std::move(update));
      cluster.Complete(cluster.MakeComplete(0, step, 0));
      MakeRoom(cluster.leader());
    }
    cluster.PushAll(0, 4, 0, 1);
    for (auto& update : cluster.leader().TakeAhead()) left.push_back(std::move(update));
  }
  ASSERT_EQ(left.size(), 3u);
  for (const auto& update : left) update->Run();
  EXPECT_FALSE(left[0]->HasEnded());
  EXPECT_TRUE(left[2]->HasEnded());
}

// What a worker lends, and writes again too early, is found, whoever has read it.
TEST(ShardAheadTest, WhatIsWrittenAgainIsNotTaken) {
  ShardCluster cluster(WithAhead(SummingJob()), MakeView({.tensors = {{"w", 4}}, .workers = 1}),
                       /*start=*/true, Ahead());
  Floats lent(4, 1);
  std::atomic<uint64_t> count = 1;
  const auto push = [&](uint64_t step) {
    PushRequest request;
    *request.mutable_header() = cluster.worker(0);
    request.set_step(step);
    const TensorSlice slice = {
        0, F32,
        TensorBytes::Piece(reinterpret_cast<const std::byte*>(lent.data()), sizeof(float) * 4),
        std::shared_ptr<const void>(&lent, [](const void*) {}), Loan{&count, count}};
    ASSERT_TRUE(cluster.leader().Push(request, absl::MakeConstSpan(&slice, 1)).ok());
  };
  push(1);
  cluster.Complete(cluster.MakeComplete(0, 1, 0));
  MakeRoom(cluster.leader());
  push(2);
  for (const auto& update : cluster.leader().TakeAhead()) update->Run();
  cluster.Complete(cluster.MakeComplete(0, 2, 0));
  EXPECT_EQ(cluster.Values("w", 2), Floats(4, -2));
  EXPECT_EQ(cluster.leader().counts().ahead_taken, 1u);
  push(3);
  ++count;
  for (const auto& update : cluster.leader().TakeAhead()) update->Run();
  cluster.Complete(cluster.MakeComplete(0, 3, 0));
  EXPECT_TRUE(cluster.leader().error().has_value());
}

TEST(ShardAheadTest, NothingIsComputedAheadWhereTheJobDoesNotAskForIt) {
  ShardCluster cluster(SummingJob(), MakeView(TwoWorkers()), /*start=*/true, Ahead());
  for (uint64_t step = 1; step <= 2; ++step) {
    for (const uint32_t worker : {0, 1}) cluster.PushAll(worker, step, 0, 1);
    EXPECT_TRUE(cluster.leader().TakeAhead().empty());
    for (const uint32_t worker : {0, 1}) cluster.Complete(cluster.MakeComplete(worker, step, 0));
    MakeRoom(cluster.leader());
  }
}

std::string BytesOf(const std::vector<SliceSnapshot>& snapshot) {
  std::string all;
  for (const SliceSnapshot& slice : snapshot) {
    absl::StrAppend(&all, slice.optimizer_steps, ":");
    all.append(reinterpret_cast<const char*>(slice.values->data()), slice.values->size());
    for (const SliceSnapshot::State& state : slice.state) {
      all.append(reinterpret_cast<const char*>(slice.state_buffer->data() + state.offset),
                 slice.values->size());
    }
  }
  return all;
}

void LeaveOutZeros(SliceData& slice) {
  const std::string whole = slice.data();
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(whole.data()),
                                          whole.size());
  slice.set_nonzero(FindNonzero(bytes, sizeof(float)));
  if (!slice.nonzero().empty()) {
    PackNonzero(bytes, sizeof(float), slice.nonzero(), slice.mutable_data());
  }
}

// Values and state of all steps, with Adam, of random gradients and weights; some of what can be
// computed ahead is, before the verdict, or after it, while versions and snapshots are held.
std::vector<std::string> Train(bool ahead, bool deterministic, uint32_t seed) {
  JobConfig job = WithAhead(AdamJob(), ahead);
  job.mutable_consistency()->mutable_sync()->set_deterministic(deterministic);
  const ClusterView view = MakeView(
      {.tensors = {{"a", 3 * kBlockElements + 1001}, {"b", 777}}, .shards = 2, .workers = 2});
  ShardCluster cluster(job, view, /*start=*/true, Ahead());
  std::mt19937 gradients(seed);
  std::mt19937 order(seed + 1);
  std::vector<std::string> trained;
  std::vector<std::shared_ptr<AheadUpdate>> open;
  std::vector<std::pair<std::vector<SliceSnapshot>, std::string>> held;  // and what they had
  const auto run_some = [&] {
    for (uint32_t shard = 0; shard < 2; ++shard) {
      for (auto& update : cluster.shard(shard).TakeAhead()) open.push_back(std::move(update));
    }
    while (!open.empty() && order() % 3 != 0) {
      std::swap(open[order() % open.size()], open.back());
      open.back()->Run();
      open.pop_back();
    }
  };
  uint64_t taken = 0;
  for (uint64_t step = 1; step <= 8; ++step) {
    std::uniform_real_distribution<float> any(-1, 1);
    for (const uint32_t worker : {0, 1}) {
      for (const Slice& slice : view.slices()) {
        Floats gradient(slice.end() - slice.begin());
        for (float& value : gradient) value = any(gradients);
        // As an embedding's, for a few steps, but for one word.
        if ((slice.id() + step / 3) % 2 == 0) {
          std::fill(gradient.begin() + (step == 5 ? 0 : gradient.size() / 8), gradient.end(), 0.0F);
        }
        PushRequest push = cluster.MakePush(worker, step, 0, slice.id(), gradient);
        if (order() % 2 == 0) LeaveOutZeros(*push.mutable_slices(0));
        EXPECT_TRUE(cluster.Push(push).ok());
        run_some();
      }
    }
    const double weight = step == 5 ? 0.5 : 1;
    for (const uint32_t worker : {0, 1}) {
      cluster.Complete(cluster.MakeComplete(worker, step, 0, weight));
      run_some();
    }
    cluster.Deliver();
    run_some();
    for (uint32_t shard = 0; shard < 2; ++shard) MakeRoom(cluster.shard(shard));
    std::string& all = trained.emplace_back();
    for (uint32_t shard = 0; shard < 2; ++shard) {
      auto snapshot = cluster.shard(shard).Snapshot(step);
      EXPECT_EQ(snapshot.status(), absl::OkStatus());
      if (!snapshot.ok()) return trained;
      const std::string bytes = BytesOf(*snapshot);
      all += bytes;
      if (order() % 2 == 0) held.emplace_back(*std::move(snapshot), bytes);
    }
    while (held.size() > 4) {
      EXPECT_TRUE(BytesOf(held.front().first) == held.front().second)
          << "as it was, in step " << step;
      held.erase(held.begin());
    }
    taken = cluster.shard(0).counts().ahead_taken + cluster.shard(1).counts().ahead_taken;
  }
  EXPECT_EQ(taken > 0, ahead);
  return trained;
}

TEST(ShardAheadTest, TheBitsAreTheSameWhateverIsComputedAhead) {
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const bool deterministic = seed % 2 == 0;
    // The others are added in the order of arrival, which is the same here.
    EXPECT_TRUE(Train(/*ahead=*/true, deterministic, seed) ==
                Train(/*ahead=*/false, deterministic, seed));
  }
}

}  // namespace
}  // namespace parley::testing
