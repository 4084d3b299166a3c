// A step that is carried out slice by slice, while slices are pulled.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

// The last two are tiny, and the first piece of a step together; each of the others is one.
ViewOptions Tensors() {
  constexpr uint64_t kPiece = 1 << 18;
  return {.tensors = {{"a", kPiece}, {"b", kPiece}, {"c", kPiece}, {"d", 100}, {"e", 7}},
          .workers = 2,
          .slice_elements = kPiece};
}

ShardResources Later() {
  ShardResources resources;
  resources.later = [](const std::function<void()>&) { ADD_FAILURE() << "a core has no threads"; };
  resources.later_from = 1;
  return resources;
}

class WorkTest : public ::testing::Test {
 protected:
  explicit WorkTest(ViewOptions view = Tensors())
      : cluster_(SummingJob(), MakeView(view), /*start=*/true, Later()) {}

  ShardCluster::CompleteResult Complete(uint32_t worker, uint64_t step, bool at_once) {
    CompleteRequest request = cluster_.MakeComplete(worker, step, 0);
    request.set_at_once(at_once);
    return cluster_.Complete(request);
  }

  // Until both have completed; the first of them without `at_once`.
  std::shared_ptr<StepWork> Decide(uint64_t step) {
    cluster_.PushAll(0, step, 0, 1);
    cluster_.PushAll(1, step, 0, 2);
    waits_ = Complete(0, step, /*at_once=*/false);
    EXPECT_EQ(cluster_.leader().TakeWork(), nullptr);
    at_once_ = Complete(1, step, /*at_once=*/true);
    return cluster_.leader().TakeWork();
  }

  void Run(StepWork& work, size_t piece) {
    const absl::Status status = work.Run(piece);
    Replies replies;
    cluster_.leader().OnUpdated(piece, status, replies);
  }

  ShardCluster::PullResult PullOfNothing(uint64_t version) {
    auto result = std::make_shared<std::optional<absl::StatusOr<PulledVersion>>>();
    PullRequest request;
    *request.mutable_header() = cluster_.worker(0);
    request.set_version(version);
    Replies replies;
    cluster_.leader().Pull(
        request, {cluster_.now(), cluster_.now() + absl::Hours(1)}, replies,
        [result](absl::StatusOr<PulledVersion> reply) { *result = std::move(reply); });
    return result;
  }

  ShardCluster cluster_;
  ShardCluster::CompleteResult waits_;
  ShardCluster::CompleteResult at_once_;
};

TEST_F(WorkTest, TheVerdictComesAtOnceToWhoWantsItSo) {
  const auto work = Decide(1);
  ASSERT_NE(work, nullptr);
  EXPECT_EQ(cluster_.leader().TakeWork(), nullptr);  // once
  ASSERT_EQ(work->pieces(), 4u);
  ASSERT_TRUE(at_once_->has_value());
  EXPECT_EQ(VerdictOf(at_once_).outcome(), Verdict::APPLY);
  for (size_t piece = 0; piece < 4; ++piece) {
    EXPECT_FALSE(waits_->has_value());  // what it has lent is read
    Run(*work, piece);
  }
  ASSERT_TRUE(waits_->has_value());
  EXPECT_EQ(VerdictOf(waits_).outcome(), Verdict::APPLY);
}

TEST_F(WorkTest, ASliceCanBePulledAsSoonAsItIsDone) {
  const auto early = cluster_.Pull(0, 1, 1);
  const auto work = Decide(1);
  ASSERT_NE(work, nullptr);
  const auto other = cluster_.Pull(0, 2, 1);
  Run(*work, 2);
  ASSERT_TRUE(early->has_value());
  ASSERT_TRUE((*early)->ok());
  EXPECT_EQ((**early)->slices[0].values->as<float>()[0], -3);
  EXPECT_FALSE(other->has_value());
  const auto again = cluster_.Pull(1, 1, 1);
  ASSERT_TRUE(again->has_value());
  Run(*work, 0);
  EXPECT_TRUE(cluster_.Pull(0, 3, 1)->has_value());
  EXPECT_TRUE(cluster_.Pull(0, 4, 1)->has_value());
  Run(*work, 1);
  EXPECT_FALSE(other->has_value());
  Run(*work, 3);
  ASSERT_TRUE(other->has_value());
}

TEST_F(WorkTest, APullOfNoSlicesWaitsForTheWholeStep) {
  const auto parked = PullOfNothing(1);
  const auto work = Decide(1);
  const auto later = PullOfNothing(1);
  for (size_t piece = 0; piece < work->pieces(); ++piece) {
    EXPECT_FALSE(parked->has_value());
    EXPECT_FALSE(later->has_value());
    Run(*work, piece);
  }
  ASSERT_TRUE(parked->has_value());
  EXPECT_TRUE((*parked)->ok());
  ASSERT_TRUE(later->has_value());
  EXPECT_TRUE((*later)->ok());
}

// Else it would not hear of its part in the step's evaluation.
TEST(ShardWorkTest, WhoEntersIsAnsweredWhenTheStepHasEnded) {
  ClusterView view = MakeView(Tensors());
  view.set_training_samples(4);
  view.set_test_samples(10);
  ShardCluster cluster(SummingJob(), view, /*start=*/true, Later());
  cluster.SetView(WithMemberAt(view, 2, 9));
  const auto entered = cluster.Enter(HeaderOf(cluster.view(), 9), 2);
  EXPECT_FALSE(entered->has_value());
  for (const uint32_t worker : {0, 1}) cluster.PushAll(worker, 1, 0, 1);
  for (const uint32_t worker : {0, 1}) {
    CompleteRequest request = cluster.MakeComplete(worker, 1, 0);
    SampleRange* const range = request.mutable_share()->add_ranges();
    range->set_begin(uint64_t{2} * worker);
    range->set_end(uint64_t{2} * worker + 2);
    cluster.Complete(request);
  }
  const auto work = cluster.leader().TakeWork();
  ASSERT_NE(work, nullptr) << cluster.leader().error().value_or("");
  for (size_t piece = 0; piece < work->pieces(); ++piece) {
    EXPECT_FALSE(entered->has_value());
    const absl::Status status = work->Run(piece);
    Replies replies;
    cluster.leader().OnUpdated(piece, status, replies);
  }
  ASSERT_TRUE(entered->has_value());
  ASSERT_TRUE((*entered)->ok()) << (*entered)->status();
  EXPECT_EQ((*entered)->value().evaluation().version(), 1u);
}

TEST_F(WorkTest, WhatAnEvaluationNeedsIsKeptWhenAllIsDone) {
  const auto work = Decide(1);
  for (size_t piece = work->pieces(); piece-- > 0;) Run(*work, piece);
  const auto snapshot = cluster_.leader().Snapshot(1);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  for (const SliceSnapshot& slice : *snapshot) EXPECT_EQ(slice.values->as<float>()[0], -3);
}

TEST_F(WorkTest, AnErrorEndsTheJobWhenNobodyIsAtWorkAnyMore) {
  const auto work = Decide(1);
  const auto pull = cluster_.Pull(0, 1, 1);
  Replies replies;
  cluster_.leader().OnUpdated(2, absl::AbortedError("it was written again"), replies);
  EXPECT_FALSE(cluster_.leader().error().has_value());
  for (const size_t piece : {0, 1, 3}) {
    EXPECT_FALSE(pull->has_value());
    Run(*work, piece);
  }
  ASSERT_TRUE(cluster_.leader().error().has_value());
  EXPECT_NE(cluster_.leader().error()->find("step 1 cannot be carried out: it was written again"),
            std::string::npos)
      << *cluster_.leader().error();
  ASSERT_TRUE(pull->has_value());
  EXPECT_FALSE((*pull)->ok());
  ASSERT_TRUE(waits_->has_value());
  EXPECT_FALSE((*waits_)->ok());
  EXPECT_FALSE(cluster_.leader().Snapshot(1).ok());  // a mixture
}

TEST(ShardWorkTest, TheFirstPiecesAreSmall) {
  ViewOptions options;
  options.tensors.clear();
  for (int i = 0; i < 64; ++i) options.tensors.push_back({absl::StrCat("t", i), 1 << 13});
  options.slice_elements = 1 << 13;
  ShardCluster cluster(SummingJob(), MakeView(options), /*start=*/true, Later());
  cluster.PushAll(0, 1, 0, 1);
  cluster.Complete(cluster.MakeComplete(0, 1, 0));
  const auto work = cluster.leader().TakeWork();
  ASSERT_NE(work, nullptr);
  std::vector<int> slices;
  for (size_t piece = 0, done = 0; piece < work->pieces(); ++piece) {
    const absl::Status status = work->Run(piece);
    Replies replies;
    cluster.leader().OnUpdated(piece, status, replies);
    size_t now = 0;
    while (now < 64 && cluster.Pull(0, static_cast<uint32_t>(now), 1)->has_value()) ++now;
    slices.push_back(static_cast<int>(now - done));
    done = now;
  }
  EXPECT_EQ(slices, (std::vector<int>{2, 4, 8, 16, 32, 2}));
}

TEST(ShardWorkTest, ASmallStepIsCarriedOutAtOnce) {
  ShardResources resources = Later();
  resources.later_from = 5;
  ShardCluster cluster(SummingJob(), MakeView({}), /*start=*/true, resources);
  cluster.PushAll(0, 1, 0, 1);
  const auto decided = cluster.Complete(cluster.MakeComplete(0, 1, 0));
  EXPECT_TRUE(decided->has_value());
  EXPECT_EQ(cluster.leader().TakeWork(), nullptr);
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -1));
}

// Whatever the order of the pieces and of pulls between them: each answer has the values of its
// version and comes as soon as its slices are done, and not before.
TEST(ShardWorkTest, AnyOrderOfPiecesAndPullsGivesTheValuesOfTheVersion) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ClusterView view = MakeView(Tensors());
    ShardCluster cluster(SummingJob(), view, /*start=*/true, Later());
    std::vector<float> expected(static_cast<size_t>(view.slices_size()), 0);
    struct Open {
      uint32_t slice;
      ShardCluster::PullResult result;
    };
    std::vector<PinnedBuffer> held;
    for (uint64_t step = 1; step <= 3; ++step) {
      std::vector<Open> open;
      std::vector<bool> done(expected.size(), false);
      const auto pull = [&] {
        const auto slice = static_cast<uint32_t>(random() % expected.size());
        open.push_back({slice, cluster.Pull(random() % 2, slice, step)});
      };
      const auto check = [&] {
        for (auto it = open.begin(); it != open.end();) {
          ASSERT_EQ(it->result->has_value(), done[it->slice]) << "slice " << it->slice;
          if (!it->result->has_value()) {
            ++it;
            continue;
          }
          ASSERT_TRUE((*it->result)->ok()) << (*it->result)->status();
          const PinnedBuffer& values = (**it->result)->slices[0].values;
          EXPECT_EQ(values->as<float>()[0], expected[it->slice]);
          EXPECT_EQ(values->as<float>().back(), expected[it->slice]);
          // Some are read for longer than the step lasts.
          if (random() % 4 == 0) held.push_back(values);
          it = open.erase(it);
        }
      };
      for (int i = 0; i < 2; ++i) pull();
      for (uint32_t slice = 0; slice < expected.size(); ++slice) {
        const auto value = static_cast<float>(1 + random() % 5);
        expected[slice] -= 3 * value;
        for (const uint32_t worker : {0, 1}) {
          const Slice& of = view.slices(static_cast<int>(slice));
          const Floats values(of.end() - of.begin(), (worker + 1) * value);
          ASSERT_TRUE(cluster.Push(cluster.MakePush(worker, step, 0, slice, values)).ok());
        }
      }
      cluster.Complete(cluster.MakeComplete(0, step, 0));
      cluster.Complete(cluster.MakeComplete(1, step, 0));
      const auto work = cluster.leader().TakeWork();
      ASSERT_NE(work, nullptr);
      std::vector<size_t> order(work->pieces());
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      check();
      for (const size_t piece : order) {
        if (random() % 2 == 0) pull();
        check();
        const absl::Status status = work->Run(piece);
        check();  // done, but not said
        {
          Replies replies;
          cluster.leader().OnUpdated(piece, status, replies);
        }
        for (uint32_t slice = 0; slice < expected.size(); ++slice) {
          done[slice] = done[slice] || (slice < 3 ? slice + 1 : 0) == piece;
        }
        pull();
        check();
      }
      EXPECT_TRUE(open.empty());
      while (held.size() > 3) held.erase(held.begin());
    }
  }
}

}  // namespace
}  // namespace parley::testing
