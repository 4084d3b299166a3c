#include "client/step_exchange.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/testing/step_exchange_fixture.h"

namespace parley {
namespace {

TEST_F(StepExchangeTest, SaysHowMuchGradientsWeighAndNamesWhatHasNone) {
  StepExchange exchange = MakeExchange();
  exchange.Open(4, 0, 0.5);
  SetGradient(1, 6);
  SetGradient(2, 8);
  ASSERT_TRUE(exchange.Push(1).ok());
  ASSERT_TRUE(exchange.Push(2).ok());
  EXPECT_EQ(shard().pushes(), 0);  // small ones wait for each other
  ASSERT_TRUE(exchange.AwaitPushes(wait()).ok());
  EXPECT_EQ(shard().pushes(), 1);
  EXPECT_EQ(Pushed(0, 1), 6);
  EXPECT_EQ(Pushed(0, 2), 8);
  EXPECT_EQ(shard().scale(), 0.5);
  shard().WillAnswer(Verdict::APPLY, 4, 0);
  Share share;
  share.set_samples(5);
  const auto verdict = exchange.AwaitVerdict(wait(), share, 2);
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  const CompleteRequest complete = shard().completes().at(0);
  EXPECT_EQ(complete.step(), 4);
  EXPECT_EQ(complete.share().samples(), 5);
  EXPECT_EQ(complete.data_epoch(), 2);
  ASSERT_EQ(complete.none_size(), 1);
  EXPECT_EQ(complete.none(0), 0);
  EXPECT_EQ(exchange.Push(0).code(), absl::StatusCode::kFailedPrecondition);  // closed
  EXPECT_EQ(exchange.TakePushedBytes(), 16);
}

TEST_F(StepExchangeTest, ASumTakesGradientsAsTheyAre) {
  StepExchange exchange = MakeExchange(/*sum=*/true);
  exchange.Open(1, 0, 0.25);
  SetGradient(0, 12);
  ASSERT_TRUE(exchange.Push(0).ok());
  ASSERT_TRUE(exchange.AwaitPushes(wait()).ok());
  EXPECT_EQ(Pushed(0, 0), 12);
  EXPECT_EQ(shard().scale(), 1);
}

TEST_F(StepExchangeTest, WithoutDataEverythingIsNone) {
  StepExchange exchange = MakeExchange();
  exchange.Open(1, 0, 0);
  EXPECT_TRUE(exchange.Push(0).ok());
  ASSERT_TRUE(exchange.AwaitPushes(wait()).ok());
  shard().WillAnswer(Verdict::APPLY, 1, 0);
  ASSERT_TRUE(exchange.AwaitVerdict(wait(), Share(), 0).ok());
  EXPECT_EQ(shard().pushes(), 0);
  EXPECT_EQ(shard().completes().at(0).none_size(), 3);
}

TEST_F(StepExchangeTest, OnRetryItSendsAgainWhatItHolds) {
  StepExchange exchange = MakeExchange(false, /*group_bytes=*/1);
  exchange.Open(1, 0, 0.5);
  SetGradient(0, 2);
  SetGradient(1, 4);
  for (size_t tensor : {0, 1}) ASSERT_TRUE(exchange.Push(tensor).ok());
  for (uint32_t attempt : {0, 3, 4}) {
    ASSERT_TRUE(exchange.AwaitPushes(wait()).ok());
    EXPECT_EQ(Pushed(attempt, 0), 2);
    EXPECT_EQ(Pushed(attempt, 1), 4);
    EXPECT_EQ(shard().scale(), 0.5);
    EXPECT_EQ(shard().pushed(attempt, 2), "");
    // From 0 to 2: attempts between were over before we came.
    const uint32_t over = attempt == 0 ? 2 : attempt;
    shard().WillAnswer(attempt == 4 ? Verdict::SKIP : Verdict::RETRY, 1, over);
    const auto verdict = exchange.AwaitVerdict(wait(), Share(), 0);
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    EXPECT_EQ(shard().completes().back().attempt(), attempt);
  }
}

TEST_F(StepExchangeTest, AGradientCanGoFromItsBeginningButHasToGoWhole) {
  StepExchange exchange = MakeExchange(false, /*group_bytes=*/1);
  EXPECT_EQ(exchange.PushUntil(0, 4).code(), absl::StatusCode::kFailedPrecondition);
  exchange.Open(1, 0, 1);
  SetGradient(0, 2);
  SetGradient(1, 4);
  EXPECT_EQ(exchange.PushUntil(9, 4).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(exchange.PushUntil(0, 4).ok());
  EXPECT_EQ(Pushed(0, 0), 0) << "it is one slice";
  ASSERT_TRUE(exchange.PushUntil(1, 8).ok());
  EXPECT_EQ(Pushed(0, 1), 4);
  ASSERT_TRUE(exchange.Push(0).ok());
  EXPECT_EQ(Pushed(0, 0), 2);
  const absl::Status part = exchange.CheckWhole();
  EXPECT_EQ(part.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(part.message().find("of 'b' only the beginning"), std::string::npos) << part;
  ASSERT_TRUE(exchange.Push(1).ok());
  EXPECT_EQ(exchange.PushUntil(1, 8).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(exchange.CheckWhole().ok());
  EXPECT_EQ(shard().pushes(), 2);
  // And what has gone in parts goes again as a whole.
  for (uint32_t attempt : {0, 1}) {
    ASSERT_TRUE(exchange.AwaitPushes(wait()).ok());
    EXPECT_EQ(Pushed(attempt, 0), 2);
    EXPECT_EQ(Pushed(attempt, 1), 4);
    shard().WillAnswer(attempt == 1 ? Verdict::APPLY : Verdict::RETRY, 1, attempt);
    const auto verdict = exchange.AwaitVerdict(wait(), Share(), 0);
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    EXPECT_EQ(shard().completes().back().none_size(), 1);
  }
  EXPECT_EQ(shard().pushes(), 4);
}

TEST_F(StepExchangeTest, TheBeginningOfWhatDoesNotCountDoesNotGo) {
  StepExchange exchange = MakeExchange(false, /*group_bytes=*/1);
  exchange.Open(1, 0, 0);
  ASSERT_TRUE(exchange.PushUntil(0, 8).ok());
  EXPECT_TRUE(exchange.AwaitPushes(wait()).ok());
  EXPECT_EQ(shard().pushes(), 0);
}

TEST_F(StepExchangeTest, WhereCallsAreDearWhatIsSmallTravelsWithComplete) {
  shard().joins_calls = true;
  StepExchange exchange = MakeExchange();
  exchange.Open(1, 0, 0.5);
  SetGradient(0, 2);
  SetGradient(2, 8);
  ASSERT_TRUE(exchange.Push(0).ok());
  ASSERT_TRUE(exchange.Push(2).ok());
  for (const uint32_t attempt : {0, 1}) {
    ASSERT_TRUE(exchange.AwaitPushes(wait()).ok());
    SetGradient(2, 9);  // what is sent is a copy
    shard().WillAnswer(attempt == 0 ? Verdict::RETRY : Verdict::APPLY, 1, attempt);
    ASSERT_TRUE(exchange.AwaitVerdict(wait(), Share(), 0, {2, 0}).ok());
    const CompleteRequest complete = shard().completes().back();
    ASSERT_EQ(complete.pushed_size(), 2);
    float values[2] = {0, 0};
    for (int i : {0, 1}) {
      ASSERT_EQ(complete.pushed(i).data().size(), 2 * sizeof(float));
      std::memcpy(&values[i], complete.pushed(i).data().data(), sizeof(float));
    }
    EXPECT_EQ(complete.pushed(0).slice(), 0);
    EXPECT_EQ(complete.pushed(1).slice(), 2);
    EXPECT_EQ(complete.pushed_scale(), 0.5);
    EXPECT_EQ(values[0], 2);
    EXPECT_EQ(values[1], attempt == 0 ? 8 : 9);
    EXPECT_EQ(complete.none_size(), 1);
  }
  EXPECT_EQ(shard().pushes(), 0);
  EXPECT_EQ(exchange.TakePushedBytes(), 32);
  std::optional<TensorPull> pulled = exchange.TakePulled();
  ASSERT_TRUE(pulled.has_value());
  EXPECT_EQ(pulled->head.version(), 1);
  ASSERT_EQ(pulled->slices.size(), 2u);
  std::string bytes(pulled->slices[0].bytes.size(), ' ');
  pulled->slices[0].bytes.CopyTo(reinterpret_cast<std::byte*>(bytes.data()));
  EXPECT_EQ(bytes, "value 2");
  EXPECT_FALSE(exchange.TakePulled().has_value());
}

TEST_F(StepExchangeTest, WhatWasSentBeforeDoesNotTravelAgain) {
  shard().joins_calls = true;
  StepExchange exchange = MakeExchange(/*sum=*/false, /*group_bytes=*/16);
  exchange.Open(1, 0, 1);
  ASSERT_TRUE(exchange.Push(0).ok());
  ASSERT_TRUE(exchange.Push(1).ok());  // a group is whole
  ASSERT_TRUE(exchange.Push(2).ok());
  EXPECT_EQ(shard().pushes(), 1);
  ASSERT_TRUE(exchange.AwaitPushes(wait()).ok());
  shard().WillAnswer(Verdict::APPLY, 1, 0);
  ASSERT_TRUE(exchange.AwaitVerdict(wait(), Share(), 0).ok());
  EXPECT_EQ(shard().pushes(), 1);
  ASSERT_EQ(shard().completes().at(0).pushed_size(), 1);
  EXPECT_EQ(shard().completes().at(0).pushed(0).slice(), 2);
}

TEST_F(StepExchangeTest, APushThatIsRefusedEndsTheStepAndOneThatIsLostDoesNot) {
  StepExchange exchange = MakeExchange();
  exchange.Open(1, 0, 1);
  ASSERT_TRUE(exchange.Push(0).ok());
  shard().WillRefusePush(absl::UnavailableError("lost"));
  ASSERT_TRUE(exchange.AwaitPushes(wait()).ok());
  EXPECT_EQ(shard().pushes(), 2);
  exchange.Open(2, 0, 1);
  ASSERT_TRUE(exchange.Push(0).ok());
  shard().WillRefusePush(absl::InvalidArgumentError("wrong size"));
  EXPECT_EQ(exchange.AwaitPushes(wait()).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(StepExchangeTest, AVerdictOfAnotherStepIsNotTaken) {
  StepExchange exchange = MakeExchange();
  exchange.Open(2, 0, 1);
  ASSERT_TRUE(exchange.AwaitPushes(wait()).ok());
  shard().WillAnswer(Verdict::APPLY, 1, 0);
  EXPECT_EQ(exchange.AwaitVerdict(wait(), Share(), 0).status().code(), absl::StatusCode::kInternal);
}

TEST_F(StepExchangeTest, ManyThreadsPushAtOnce) {
  StepExchange exchange = MakeExchange(false, 16);
  for (uint64_t step = 1; step <= 50; ++step) {
    exchange.Open(step, 0, 1);
    std::vector<std::thread> threads;
    for (size_t tensor = 0; tensor < 3; ++tensor) {
      SetGradient(tensor, static_cast<float>(step * 10 + tensor));
      threads.emplace_back([&exchange, tensor] { EXPECT_TRUE(exchange.Push(tensor).ok()); });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(exchange.AwaitPushes(wait()).ok());
    for (uint32_t tensor = 0; tensor < 3; ++tensor)
      EXPECT_EQ(Pushed(0, tensor), step * 10 + tensor);
    shard().WillAnswer(Verdict::APPLY, step, 0);
    ASSERT_TRUE(exchange.AwaitVerdict(wait(), Share(), 0).ok());
  }
}

}  // namespace
}  // namespace parley
