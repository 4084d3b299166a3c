#include "client/push_window.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <utility>

#include "client/testing/held_shards.h"

namespace parley {
namespace {

constexpr size_t kWindow = 4000;
constexpr uint32_t kShards = 2;

// 40 tensors of 100 floats, a slice each, on two shards in turn.
class PushWindowTest : public testing::Test {
 protected:
  explicit PushWindowTest(int64_t elements = 100) : shards_(kShards, 40, elements) {}

  std::shared_ptr<PushWindow> MakeWindow(size_t group_bytes = 1000) {
    PushWindow::Options options;
    options.group_bytes = group_bytes;
    options.window_bytes = kWindow;
    return PushWindow::Make(options, shards_.tensors(), shards_.layout(), shards_.arena(),
                            shards_.calls());
  }
  absl::Status Await(const PushWindow& window) {
    return shards_.RunUntil([&] { return window.AllAcknowledged(); });
  }

  HeldShards shards_;
};

TEST_F(PushWindowTest, WhatAShardDoesNotAcknowledgeIsBoundedAndAllComesOnceInTheEnd) {
  const auto window = MakeWindow();
  window->Begin(1, 0, 1);
  for (size_t tensor = 0; tensor < 40; ++tensor) window->Add(tensor);
  window->Flush();
  std::set<uint32_t> seen;
  while (!shards_.held(0).empty() || !shards_.held(1).empty()) {
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      ASSERT_LE(window->unacknowledged_bytes(shard), kWindow);
      ASSERT_LE(shards_.HeldBytes(shard), kWindow);
      if (shards_.held(shard).empty()) continue;
      for (const uint32_t slice : shards_.AnswerFirst(shard))
        EXPECT_TRUE(seen.insert(slice).second);
    }
  }
  EXPECT_EQ(seen.size(), 40u);
  EXPECT_TRUE(Await(*window).ok());
  EXPECT_EQ(window->unacknowledged_bytes(0), 0u);
}

TEST_F(PushWindowTest, UsesTheWholeWindowAndASlowShardHoldsUpNoOther) {
  const auto window = MakeWindow();
  window->Begin(1, 0, 1);
  for (size_t tensor = 0; tensor < 40; ++tensor) window->Add(tensor);
  window->Flush();
  EXPECT_EQ(shards_.HeldBytes(0), 3600u);  // three messages of three slices, a fourth has no room
  size_t slices = 0;
  while (!shards_.held(1).empty()) slices += shards_.AnswerFirst(1).size();
  EXPECT_EQ(slices, 20u);
  EXPECT_FALSE(window->AllAcknowledged());
}

TEST_F(PushWindowTest, GradientsAreNarrowedOnTheirWayToAFarShardOnly) {
  PushWindow::Options options;
  options.window_bytes = kWindow;
  options.narrow = BF16;
  const auto window = PushWindow::Make(options, shards_.tensors(), shards_.layout(),
                                       shards_.arena(), shards_.calls());
  window->Begin(1, 0, 0.5);
  window->Add(0);
  window->Flush();
  ASSERT_EQ(shards_.held(0).size(), 1u);
  EXPECT_EQ(shards_.held(0)[0].dtype, BF16);
  EXPECT_EQ(shards_.held(0)[0].bytes, 200u);
  EXPECT_EQ(window->TakeSentBytes(), 200u);
  shards_.AnswerFirst(0);
  shards_.ReadLent(true);
  window->Add(2);
  ASSERT_EQ(shards_.held(0).size(), 1u);
  EXPECT_EQ(shards_.held(0)[0].dtype, F32);
  EXPECT_EQ(shards_.held(0)[0].bytes, 400u);
  EXPECT_EQ(window->TakeSentBytes(), 400u);
  shards_.AnswerFirst(0);
  EXPECT_TRUE(Await(*window).ok());
}

// A shard that reads them in place has next to nothing to read. Else a message is as large as it
// was.
TEST(PushWindowZeros, SlicesThatAreMostlyZerosShareMessages) {
  constexpr size_t kSlices = 200;
  constexpr size_t kSlice = 65536;
  HeldShards shards(1, 1, kSlice, kSlices);
  const auto messages = [&](std::string_view nonzero, size_t group_bytes) {
    PushWindow::Options options;
    options.group_bytes = group_bytes;
    const auto window = PushWindow::Make(options, shards.tensors(), shards.layout(), shards.arena(),
                                         shards.calls());
    window->Begin(1, 0, 1);
    window->Add(0, nonzero);
    std::vector<size_t> slices;
    while (!shards.held(0).empty()) slices.push_back(shards.AnswerFirst(0).size());
    EXPECT_EQ(window->unacknowledged_bytes(0), 0);
    return slices;
  };
  constexpr size_t kOne = kSlice * sizeof(float);
  const std::string zeros(kSlices * kSlice / 1024 / 8, '\0');
  const std::vector<size_t> one_each(kSlices, 1);
  EXPECT_EQ(messages(zeros, kOne), one_each);
  shards.ReadLent(true);
  EXPECT_EQ(messages(zeros, kOne), (std::vector<size_t>{64, 64, 64, 8})) << "each is a 64th";
  std::string one_block = zeros;
  for (size_t i = 0; i < kSlices; ++i) one_block[i * 8] = 1;
  EXPECT_EQ(messages(one_block, kOne), (std::vector<size_t>{64, 64, 64, 8})) << "a block is, too";
  std::string half = zeros;
  for (size_t i = 0; i < kSlices; ++i) std::fill_n(half.begin() + 8 * i, 4, '\xff');
  EXPECT_EQ(messages(half, kOne), std::vector<size_t>(kSlices / 2, 2));
  EXPECT_EQ(messages(std::string(zeros.size(), '\xff'), kOne), one_each);
  EXPECT_EQ(messages({}, kOne), one_each) << "nobody has said what is zero";
  EXPECT_EQ(messages(zeros, 4 << 20), (std::vector<size_t>{128, 72})) << "32 MiB with the zeros";
}

TEST(PushWindowZeros, ZerosStayHereWhereAGradientGoesAsAMessage) {
  HeldShards shards(1, 1, 65536, /*slices_of_each=*/2);
  for (const bool narrow : {false, true}) {
    PushWindow::Options options;
    options.group_bytes = 1;
    if (narrow) options.narrow = BF16;
    const size_t element = narrow ? 2 : 4;
    const auto window = PushWindow::Make(options, shards.tensors(), shards.layout(), shards.arena(),
                                         shards.calls());
    const absl::Span<std::byte> bytes = shards.arena().tensor(0);
    const absl::Span<float> gradient(reinterpret_cast<float*>(bytes.data()), bytes.size() / 4);
    const auto push = [&](std::string_view nonzero) {
      window->Begin(1, 0, 1);
      window->Add(0, nonzero);
      std::vector<HeldShards::Held> sent;
      while (!shards.held(0).empty()) {
        sent.push_back(shards.held(0).front());
        shards.AnswerFirst(0);
      }
      return sent;
    };
    std::fill(gradient.begin(), gradient.end(), 1.0F);
    std::fill_n(gradient.begin() + 65536, 40000, 0.0F);
    std::vector<HeldShards::Held> sent = push({});
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(sent[0].nonzero, "");
    EXPECT_EQ(sent[0].bytes, 65536 * element);
    EXPECT_EQ(sent[1].nonzero, std::string("\0\0\0\0\x80\xff\xff\xff", 8));
    EXPECT_EQ(sent[1].bytes, (65536 - 39 * 1024) * element);
    EXPECT_EQ(window->TakeSentBytes(), (2 * 65536 - 39 * 1024) * element);
    // Who says it is believed.
    std::string known(16, '\0');
    known[7] = 1;
    known[8] = 6;
    sent = push(known);
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(sent[0].nonzero, known.substr(0, 8));
    EXPECT_EQ(sent[0].bytes, 1024 * element);
    EXPECT_EQ(sent[1].nonzero, known.substr(8));
    EXPECT_EQ(sent[1].bytes, 2048 * element);
    known.assign(16, '\xff');
    known[15] = '\x3f';
    sent = push(known);
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(sent[1].nonzero, "") << "not worth while";
    EXPECT_EQ(sent[1].bytes, 65536 * element);
    // A shard on this machine that does not read memory: messages as they are, not narrowed.
    shards.ReadLent(true);
    sent = push({});
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(sent[1].bytes, (65536 - 39 * 1024) * sizeof(float));
    shards.ReadLent(false);
  }
}

TEST_F(PushWindowTest, SmallSlicesWaitForEachOtherUntilItIsFlushed) {
  const auto window = MakeWindow();
  window->Begin(1, 0, 1);
  for (const size_t tensor : {0, 2}) window->Add(tensor);
  EXPECT_TRUE(shards_.held(0).empty());
  window->Add(4);
  ASSERT_EQ(shards_.held(0).size(), 1u);
  EXPECT_EQ(shards_.AnswerFirst(0), (std::vector<uint32_t>{0, 2, 4}));
  window->Add(6);
  EXPECT_TRUE(shards_.held(0).empty());
  window->Flush();
  EXPECT_EQ(shards_.AnswerFirst(0), std::vector<uint32_t>{6});
}

TEST(PushWindowParts, WhatIsAddedFromTheBeginningGoesSliceBySliceAndOnce) {
  HeldShards shards(1, 2, 100, /*slices_of_each=*/4);
  PushWindow::Options options;
  options.group_bytes = 1;
  options.window_bytes = 100000;
  const auto window =
      PushWindow::Make(options, shards.tensors(), shards.layout(), shards.arena(), shards.calls());
  // Another attempt begins from the beginning.
  for (uint32_t attempt : {0, 1}) {
    window->Begin(1, attempt, 1);
    std::vector<uint32_t> came;
    const auto take = [&] {
      while (!shards.held(0).empty()) {
        for (const uint32_t slice : shards.AnswerFirst(0)) came.push_back(slice);
      }
      return std::exchange(came, {});
    };
    window->AddUntil(1, 399);
    EXPECT_EQ(take(), std::vector<uint32_t>());
    window->AddUntil(1, 400);
    EXPECT_EQ(take(), std::vector<uint32_t>{4});
    window->AddUntil(1, 1201);
    EXPECT_EQ(take(), (std::vector<uint32_t>{5, 6}));
    window->AddUntil(1, 800);
    EXPECT_EQ(take(), std::vector<uint32_t>());
    window->Add(1);
    window->Add(0);
    EXPECT_EQ(take(), (std::vector<uint32_t>{7, 0, 1, 2, 3}));
    window->AddUntil(0, 1600);
    EXPECT_EQ(take(), std::vector<uint32_t>());
    EXPECT_TRUE(shards.RunUntil([&] { return window->AllAcknowledged(); }).ok());
  }
}

TEST_F(PushWindowTest, OfAShardThatKeepsOrderItIsEnoughThatAllIsSent) {
  const auto window = MakeWindow();
  window->Begin(1, 0, 1);
  for (size_t tensor = 0; tensor < 30; ++tensor) window->Add(tensor);
  window->Flush();
  shards_.KeepOrder(true);
  while (!shards_.held(0).empty()) shards_.AnswerFirst(0);
  ASSERT_TRUE(shards_.RunUntil([] { return true; }).ok());
  EXPECT_FALSE(window->AllAcknowledged(1));  // the rest waits for room
  shards_.AnswerFirst(1);
  shards_.AnswerFirst(1);
  ASSERT_TRUE(shards_.RunUntil([&] { return window->AllAcknowledged(1); }).ok());
  EXPECT_FALSE(shards_.held(1).empty());
  EXPECT_FALSE(window->AllAcknowledged());
  EXPECT_FALSE(window->AllAcknowledged(0));
  shards_.KeepOrder(false);
  EXPECT_FALSE(window->AllAcknowledged(1));
}

TEST_F(PushWindowTest, WhatIsGivenUpIsNotSentAnyMore) {
  const auto window = MakeWindow();
  window->Begin(1, 0, 1);
  for (size_t tensor = 0; tensor < 40; ++tensor) window->Add(tensor);
  const int drops = shards_.drops(1);
  window->Abandon();  // the gradients may be written again
  EXPECT_GT(shards_.drops(0), 0);
  EXPECT_GT(shards_.drops(1), drops);
}

class LargeSlicesTest : public PushWindowTest {
 protected:
  LargeSlicesTest() : PushWindowTest(2000) {}  // twice the window
};

TEST_F(LargeSlicesTest, ASliceThatIsLargerThanTheWindowTravelsAlone) {
  const auto window = MakeWindow();
  window->Begin(1, 0, 1);
  for (size_t tensor = 0; tensor < 6; ++tensor) window->Add(tensor);
  window->Flush();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(shards_.held(0).size(), 1u);
    ASSERT_EQ(shards_.AnswerFirst(0).size(), 1u);
  }
  EXPECT_TRUE(shards_.held(0).empty());
}

TEST_F(PushWindowTest, AfterAbandonAcknowledgementsSendNothingMore) {
  const auto window = MakeWindow();
  window->Begin(1, 0, 1);
  for (size_t tensor = 0; tensor < 40; ++tensor) window->Add(tensor);
  window->Abandon();
  while (!shards_.held(0).empty()) shards_.AnswerFirst(0);
  EXPECT_EQ(shards_.pushes(0), 3);
}

TEST_F(PushWindowTest, WhatTheFormerAttemptLeftOpenCountsInTheNext) {
  const auto window = MakeWindow();
  window->Begin(1, 0, 1);
  for (size_t tensor = 0; tensor < 40; ++tensor) window->Add(tensor);
  window->Begin(1, 1, 1);
  for (size_t tensor = 0; tensor < 40; ++tensor) window->Add(tensor);
  EXPECT_LE(shards_.HeldBytes(0), kWindow);
  window->Abandon();
}

TEST_F(PushWindowTest, ARefusalEndsTheAttempt) {
  const auto window = MakeWindow();
  window->Begin(1, 0, 1);
  window->Add(0);
  window->Flush();
  shards_.RefuseFirst(0, absl::InvalidArgumentError("wrong size"));
  EXPECT_TRUE(Await(*window).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(window->error()));
}

TEST_F(PushWindowTest, ThreadsAddWhileOthersAcknowledgeAndNothingIsLostOrSentTwice) {
  const auto window = MakeWindow(400);
  for (uint64_t step = 1; step <= 100; ++step) {
    window->Begin(step, 0, 1);
    std::vector<std::thread> threads;
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      threads.emplace_back([&, shard] {
        for (size_t tensor = shard; tensor < 40; tensor += kShards) window->Add(tensor);
      });
    }
    std::atomic<bool> over = false;
    std::multiset<uint32_t> seen;
    std::thread answering([&] {
      while (true) {
        const bool last = over;
        bool any = false;
        for (uint32_t shard = 0; shard < kShards; ++shard) {
          if (shards_.HeldBytes(shard) == 0) continue;
          any = true;
          EXPECT_LE(shards_.HeldBytes(shard), kWindow);
          for (const uint32_t slice : shards_.AnswerFirst(shard)) seen.insert(slice);
        }
        if (last && !any) return;
      }
    });
    for (std::thread& thread : threads) thread.join();
    window->Flush();
    EXPECT_TRUE(Await(*window).ok());
    over = true;
    answering.join();
    ASSERT_EQ(seen.size(), 40u);
    ASSERT_EQ(std::set<uint32_t>(seen.begin(), seen.end()).size(), 40u);
  }
}

}  // namespace
}  // namespace parley
