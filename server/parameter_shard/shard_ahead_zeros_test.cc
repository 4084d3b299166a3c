// Updates of gradients that are mostly zeros, which are computed before there is a gradient.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_ahead_fixture.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

// Elements of one slice, of which few have a gradient.
class MostlyZeroTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kElements = 8 * 1024;

  static JobConfig Job() {
    JobConfig job = WithAhead(AdamJob());
    job.mutable_consistency()->mutable_sync()->set_reduction(SUM);
    return job;
  }
  static ViewOptions View() { return {.tensors = {{"w", kElements}}, .workers = 1}; }
  MostlyZeroTest() : cluster_(Job(), MakeView(View()), /*start=*/true, Ahead()) {}

  void Push(uint64_t step, uint64_t not_zero) {
    Floats gradient(kElements, 0);
    // What has ever had a gradient changes with each step.
    std::fill_n(gradient.begin(), step == 1 ? kElements : not_zero, static_cast<float>(step));
    ASSERT_TRUE(cluster_.Push(cluster_.MakePush(0, step, 0, 0, gradient)).ok());
    given_.push_back(gradient);
  }
  void Complete(uint64_t step) {
    cluster_.Complete(cluster_.MakeComplete(0, step, 0));
    ASSERT_EQ(cluster_.leader().version(), step);
    MakeRoom(cluster_.leader());
  }
  void RunAll() {
    for (const auto& update : cluster_.leader().TakeAhead()) update->Run();
  }
  // As without updates ahead.
  void Check() {
    JobConfig job = Job();
    job.mutable_consistency()->mutable_sync()->set_update_ahead(false);
    ShardCluster plain(job, MakeView(View()));
    for (uint64_t step = 1; step <= given_.size(); ++step) {
      ASSERT_TRUE(plain.Push(plain.MakePush(0, step, 0, 0, given_[step - 1])).ok());
      plain.Complete(plain.MakeComplete(0, step, 0));
    }
    EXPECT_EQ(cluster_.Values("w", given_.size()), plain.Values("w", given_.size()));
  }
  uint64_t taken() { return cluster_.leader().counts().ahead_taken; }

  ShardCluster cluster_;
  std::vector<Floats> given_;
};

TEST_F(MostlyZeroTest, WhatIsExpectedToBeZeroIsComputedBeforeThereIsAGradient) {
  for (uint64_t step = 1; step <= 2; ++step) {
    Push(step, 100);
    EXPECT_TRUE(cluster_.leader().TakeAhead().empty() || step > 1);
    Complete(step);
  }
  for (uint64_t step = 3; step <= 5; ++step) {
    const auto of_zeros = cluster_.leader().TakeAhead();
    ASSERT_EQ(of_zeros.size(), 1u);
    of_zeros[0]->Run();
    Push(step, 100 * step);
    // That may be too late to begin by itself: it takes no time.
    const auto rest = cluster_.leader().TakeAhead();
    ASSERT_EQ(rest.size(), 1u);
    EXPECT_TRUE(rest[0]->IsShort());
    EXPECT_TRUE(rest[0]->IsNearlyDone());
    if (step == 4) rest[0]->Run();
    Complete(step);
    EXPECT_EQ(taken(), step - 2);
  }
  Check();
}

TEST_F(MostlyZeroTest, WhatIsNotIsComputedAnew) {
  for (uint64_t step = 1; step <= 3; ++step) {
    Push(step, 100);
    Complete(step);
  }
  RunAll();
  Push(4, kElements);
  RunAll();
  Complete(4);
  EXPECT_EQ(taken(), 1u);
  EXPECT_TRUE(cluster_.leader().TakeAhead().empty()) << "nothing is expected to be zero again";
  Push(5, 0);
  RunAll();
  Complete(5);
  EXPECT_EQ(cluster_.leader().TakeAhead().size(), 1u);
  Check();
}

TEST_F(MostlyZeroTest, OneThatHasNotBegunIsNotWaitedFor) {
  for (uint64_t step = 1; step <= 3; ++step) {
    Push(step, 100);
    Complete(step);
  }
  const auto of_zeros = cluster_.leader().TakeAhead();
  Push(4, 100);
  const auto whole = cluster_.leader().TakeAhead();
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_FALSE(whole[0]->IsShort());
  EXPECT_FALSE(whole[0]->IsNearlyDone());
  whole[0]->Run();
  of_zeros[0]->Run();
  EXPECT_FALSE(of_zeros[0]->HasEnded());
  Complete(4);
  EXPECT_EQ(taken(), 1u);
  const auto again = cluster_.leader().TakeAhead();
  ASSERT_EQ(again.size(), 1u);
  Push(5, 100);
  Complete(5);
  again[0]->Run();
  EXPECT_EQ(taken(), 1u);
  Check();
}

// What it is told of has to be zero in memory, too: here, so that it shows, it is not.
TEST_F(MostlyZeroTest, WhatAWorkerSaysIsZeroIsNotRead) {
  for (uint64_t step = 1; step <= 3; ++step) {
    Push(step, 100);
    Complete(step);
  }
  RunAll();
  Floats lent(kElements, 7);
  const std::atomic<uint64_t> count = 1;
  TensorSlice slice;
  slice.dtype = F32;
  slice.bytes = TensorBytes::Piece(reinterpret_cast<const std::byte*>(lent.data()),
                                   kElements * sizeof(float));
  slice.owner = std::shared_ptr<const void>(&lent, [](const void*) {});
  slice.loan = Loan{&count, 1};
  PushRequest request;
  *request.mutable_header() = cluster_.worker(0);
  request.set_step(4);
  for (const char* wrong : {"\x42\x01", ""}) {
    slice.nonzero = wrong;
    slice.packed = slice.nonzero.empty();
    EXPECT_TRUE(absl::IsInvalidArgument(
        cluster_.leader().Push(request, absl::MakeConstSpan(&slice, 1)).status()));
  }
  slice.packed = false;
  slice.nonzero = "\x42";
  ASSERT_TRUE(cluster_.leader().Push(request, absl::MakeConstSpan(&slice, 1)).ok());
  RunAll();
  Complete(4);
  EXPECT_EQ(taken(), 1u);
  EXPECT_EQ(cluster_.leader().TakeAhead().size(), 1u) << "it was mostly zeros";
  for (const size_t block : {0, 2, 3, 4, 5, 7}) {
    std::fill_n(lent.begin() + block * 1024, 1024, 0);
  }
  given_.push_back(lent);
  Check();
}

}  // namespace
}  // namespace parley::testing
