#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/nonzero_blocks.h"
#include "common/tensor.h"
#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

TEST(ShardTest, ARepeatedPushIsADuplicateAndNotAddedAgain) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 2}));
  const PushRequest push = cluster.MakePush(0, 1, 0, 0, {1, 1, 1, 1});
  EXPECT_EQ(OutcomeOf(cluster.Push(push)), ADDED);
  EXPECT_EQ(OutcomeOf(cluster.Push(push)), DUPLICATE);
  // A duplicate does not stand in for the missing worker.
  EXPECT_FALSE(cluster.Complete(cluster.MakeComplete(0, 1, 0))->has_value());
  EXPECT_FALSE(cluster.Complete(cluster.MakeComplete(0, 1, 0))->has_value());
  cluster.PushAll(1, 1, 0, 1);
  cluster.Complete(cluster.MakeComplete(1, 1, 0));
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -2));
}

TEST(ShardTest, APushOfADecidedStepIsStaleAndOneOfALaterStepMustWait) {
  ShardCluster cluster(SummingJob(), MakeView({}));
  cluster.PushAll(0, 1, 0, 1);
  cluster.Complete(cluster.MakeComplete(0, 1, 0));
  EXPECT_EQ(OutcomeOf(cluster.Push(cluster.MakePush(0, 1, 0, 0, {1, 1, 1, 1}))), STALE);
  auto ahead = cluster.Push(cluster.MakePush(0, 3, 0, 0, {1, 1, 1, 1}));
  EXPECT_TRUE(absl::IsUnavailable(ahead.status())) << ahead.status();
  EXPECT_EQ(cluster.Values("w", 1), Floats(4, -1));
}

TEST(ShardTest, ARefusedPushHasNoEffectOnItsOtherSlices) {
  ShardCluster cluster(SummingJob(), MakeView({.tensors = {{"a", 2}, {"b", 2}}}));
  PushRequest push = cluster.MakePush(0, 1, 0, 0, {1, 1});
  *push.add_slices() = cluster.MakePush(0, 1, 0, 1, {1, 1, 1}).slices(0);  // too long
  EXPECT_TRUE(absl::IsInvalidArgument(cluster.Push(push).status()));
  cluster.PushAll(0, 1, 0, 1);  // expects ADDED
}

TEST(ShardTest, APushCountsTimesItsScaleAndItsBuffersAsTheyAre) {
  ShardCluster cluster(SummingJob(), MakeView({.workers = 1}));
  PushRequest push = cluster.MakePush(0, 1, 0, 0, {1, 2, 3, 4});
  for (const double wrong : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    push.set_scale(wrong);
    EXPECT_TRUE(absl::IsInvalidArgument(cluster.Push(push).status()));
  }
  push.set_scale(0.5);
  EXPECT_EQ(OutcomeOf(cluster.Push(push)), ADDED);
  cluster.Complete(cluster.MakeComplete(0, 1, 0));
  EXPECT_EQ(cluster.Values("w", 1), (std::vector<float>{-0.5, -1, -1.5, -2}));
  // Those that a Complete brings along, too.
  CompleteRequest complete = cluster.MakeComplete(0, 2, 0);
  *complete.add_pushed() = cluster.MakePush(0, 2, 0, 0, {2, 2, 2, 2}).slices(0);
  complete.set_pushed_scale(0.25);
  cluster.Complete(complete);
  EXPECT_EQ(cluster.Values("w", 2), (std::vector<float>{-1, -1.5, -2, -2.5}));
}

// Whatever it is added to, and as whichever type it comes.
TEST(ShardTest, ZerosThatAreLeftOutCountAsIfTheyHadCome) {
  constexpr uint64_t kElements = 5 * kZeroBlock + 10;
  for (const bool apart : {false, true}) {
    for (const bool narrow : {false, true}) {
      for (const double scale : {1.0, 0.5, -1.0}) {
        JobConfig job = SummingJob();
        job.mutable_consistency()->mutable_sync()->set_deterministic(apart);
        std::string sums[2];
        for (const bool leaves_out : {false, true}) {
          ShardCluster cluster(job, MakeView({.tensors = {{"w", kElements}}, .workers = 3}));
          for (const uint32_t worker : {0, 1, 2}) {
            Floats gradient(kElements, worker == 2 ? -0.0F : 0.0F);
            for (const uint64_t at : {worker * kZeroBlock, kElements - 1}) gradient[at] = -3;
            PushRequest push = cluster.MakePush(worker, 1, 0, 0, gradient);
            push.set_scale(scale);
            SliceData& slice = *push.mutable_slices(0);
            const std::string nonzero = FindNonzero(
                {reinterpret_cast<const std::byte*>(gradient.data()), kElements * sizeof(float)},
                sizeof(float));
            if (narrow) {
              slice.set_dtype(BF16);
              slice.clear_data();
              for (const float x : gradient) {
                const uint16_t rounded = FloatToBFloat16(x);
                slice.mutable_data()->append(reinterpret_cast<const char*>(&rounded), 2);
              }
            }
            if (leaves_out && worker != 2) {
              const std::string whole = slice.data();
              PackNonzero({reinterpret_cast<const std::byte*>(whole.data()), whole.size()},
                          narrow ? 2 : 4, nonzero, slice.mutable_data());
              slice.set_nonzero(nonzero);
              EXPECT_LT(slice.data().size(), whole.size() / 2);
            }
            ASSERT_EQ(OutcomeOf(cluster.Push(push)), ADDED);
          }
          for (const uint32_t worker : {0, 1, 2}) {
            cluster.Complete(cluster.MakeComplete(worker, 1, 0));
          }
          const Floats values = cluster.Values("w", 1);
          EXPECT_EQ(values[kZeroBlock], static_cast<float>(3 * scale));
          EXPECT_EQ(values.back(), static_cast<float>(9 * scale));
          sums[leaves_out].assign(reinterpret_cast<const char*>(values.data()),
                                  values.size() * sizeof(float));
        }
        EXPECT_EQ(sums[0], sums[1]) << apart << narrow << scale;
      }
    }
  }
}

// Of ranks of a node group, whose parts begin anywhere in a slice.
TEST(ShardTest, ZerosOfAPartAreItsOwn) {
  constexpr uint64_t kElements = 9 * kZeroBlock + 10;
  constexpr uint64_t kMiddle = 4 * kZeroBlock + 777;
  ClusterView view = MakeView({.tensors = {{"w", kElements}}, .workers = 2});
  view.mutable_contributors()->DeleteSubrange(1, 1);
  view.mutable_contributors(0)->clear_part_members();
  for (const uint64_t member : {1, 2}) view.mutable_contributors(0)->add_part_members(member);
  for (const uint32_t part : {0, 1}) {
    SlicePart& added = *view.mutable_slices(0)->add_parts();
    added.set_part(part);
    added.set_begin(part == 0 ? 0 : kMiddle);
    added.set_end(part == 0 ? kMiddle : kElements);
  }
  JobConfig job = SummingJob();
  job.mutable_cluster()->set_group(2);
  ShardCluster cluster(job, view);
  Floats expected(kElements, 0);
  for (const uint32_t part : {1, 0}) {
    const uint64_t begin = part == 0 ? 0 : kMiddle;
    Floats gradient((part == 0 ? kMiddle : kElements) - begin, 0);
    for (const uint64_t at : {uint64_t{5}, gradient.size() - 1}) {
      gradient[at] = static_cast<float>(part + 1);
      expected[begin + at] = -gradient[at];
    }
    PushRequest push = cluster.MakePush(0, 1, 0, 0, gradient);
    *push.mutable_header() = HeaderOf(view, part + 1);
    push.set_part(part);
    push.set_composition(view.contributors(0).attempt());
    SliceData& slice = *push.mutable_slices(0);
    const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(gradient.data()),
                                            gradient.size() * sizeof(float));
    slice.set_nonzero(FindNonzero(bytes, sizeof(float)));
    ASSERT_FALSE(slice.nonzero().empty());
    PackNonzero(bytes, sizeof(float), slice.nonzero(), slice.mutable_data());
    ASSERT_EQ(OutcomeOf(cluster.Push(push)), ADDED);
  }
  for (const uint32_t part : {0, 1}) {
    CompleteRequest complete = cluster.MakeComplete(0, 1, 0);
    *complete.mutable_header() = HeaderOf(view, part + 1);
    complete.set_part(part);
    complete.set_composition(view.contributors(0).attempt());
    cluster.Complete(complete);
  }
  EXPECT_EQ(cluster.Values("w", 1), expected);
}

TEST(ShardTest, WhatIsLeftOutHasToFitTheSlice) {
  ViewOptions options{.tensors = {{"w", 4 * kZeroBlock}}};
  ShardCluster cluster(SummingJob(), MakeView(options));
  const auto code = [&](const std::string& nonzero, uint64_t elements) {
    PushRequest push = cluster.MakePush(0, 1, 0, 0, Floats(elements, 1));
    push.mutable_slices(0)->set_nonzero(nonzero);
    return cluster.Push(push).status().code();
  };
  EXPECT_EQ(code("\x05", 3 * kZeroBlock), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("\x05", 4 * kZeroBlock), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("\x15", 3 * kZeroBlock), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::string("\x05\0", 2), 2 * kZeroBlock), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("\x05", 2 * kZeroBlock), absl::StatusCode::kOk);
}

TEST(ShardTest, WrongSlicesTypesAndPartsAreRefused) {
  ShardCluster cluster(SummingJob(),
                       MakeView({.tensors = {{"a", 2}, {"b", 2}}, .shards = 2, .workers = 2}));
  const auto code = [&](const PushRequest& push) { return cluster.shard(0).Push(push).status(); };
  PushRequest push = cluster.MakePush(0, 1, 0, 0, {1, 1});
  push.mutable_slices(0)->set_slice(77);
  EXPECT_TRUE(absl::IsInvalidArgument(code(push)));
  push.mutable_slices(0)->set_slice(1);  // of shard 1
  EXPECT_TRUE(absl::IsInvalidArgument(code(push)));
  push.mutable_slices(0)->set_slice(0);
  push.mutable_slices(0)->set_dtype(I64);
  EXPECT_TRUE(absl::IsInvalidArgument(code(push)));
  push.mutable_slices(0)->set_dtype(F32);
  push.set_part(1);
  EXPECT_TRUE(absl::IsInvalidArgument(code(push)));
  push.set_part(0);
  push.set_contributor(1);  // another worker's
  EXPECT_TRUE(absl::IsInvalidArgument(code(push)));
  push.set_contributor(9);
  EXPECT_TRUE(absl::IsInvalidArgument(code(push)));
}

TEST(ShardTest, CallsAreFenced) {
  ShardCluster cluster(SummingJob(), MakeView({}));
  const auto code = [&](auto change) {
    PushRequest push = cluster.MakePush(0, 1, 0, 0, {1, 1, 1, 1});
    change(*push.mutable_header());
    return cluster.Push(push).status().code();
  };
  using absl::StatusCode;
  EXPECT_EQ(code([](CallHeader& h) { h.set_job("other"); }), StatusCode::kNotFound);
  EXPECT_EQ(code([](CallHeader& h) { h.set_incarnation(5); }), StatusCode::kAborted);
  EXPECT_EQ(code([](CallHeader& h) { h.set_member(77); }), StatusCode::kAborted);
  EXPECT_EQ(code([](CallHeader& h) { h.set_job_epoch(1); }), StatusCode::kFailedPrecondition);
  EXPECT_EQ(code([](CallHeader& h) { h.set_view_epoch(2); }), StatusCode::kFailedPrecondition);
  EXPECT_EQ(code([](CallHeader&) {}), StatusCode::kOk);
  EXPECT_EQ(cluster.shard(0).counts().pushes_fenced, 4u);
}

TEST(ShardTest, BeforeTheViewCallsAreToBeTriedAgain) {
  Shard shard(SummingJob(), 0);
  PushRequest push;
  push.mutable_header()->set_job("test");
  EXPECT_TRUE(absl::IsUnavailable(shard.Push(push).status()));
}

}  // namespace
}  // namespace parley::testing
