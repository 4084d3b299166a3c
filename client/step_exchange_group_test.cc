// A step of a node group.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client/reduce/reducer.h"
#include "client/testing/step_exchange_fixture.h"

namespace parley {
namespace {

// What a node group does with what it is offered, as the test says.
class FakeReducer final : public Reducer {
 public:
  absl::Status Form(Group, Listener* listener) override {
    to = listener;
    return absl::OkStatus();
  }
  void Open(uint64_t, double given) override {
    weight = given;
    open = 2;
    offered.clear();
  }
  void Offer(size_t tensor) override { offered.insert(tensor); }
  void Close() override { ++closes; }
  bool done() const override { return open == 0; }
  std::string Missing() const override { return "rank 1 has not given its gradient"; }
  void Share(const Values&, absl::Span<const std::byte>) override {}
  void Withhold(const Values&) override {}
  Taken Take(const Values&, absl::Span<std::byte>) override { return Taken::kWithheld; }
  void Watch(std::optional<uint32_t>) override {}
  void Abort() override { ++aborts; }

  void Reduced(size_t tensor, bool any) {
    to->OnReduced(tensor, any);
    if (--open == 0) to->OnAllReduced();
  }

  Listener* to = nullptr;
  double weight = 0;
  std::atomic<int> open = 0;  // the exchange asks, whoever reduces says
  int closes = 0;
  int aborts = 0;
  std::set<size_t> offered;
};

TEST_F(StepExchangeTest, InANodeGroupWhatGoesIsWhatTheReducerHasAddedUp) {
  FakeReducer reducer;
  StepExchange exchange = MakeExchange(reducer);
  ASSERT_TRUE(reducer.Form({}, exchange.listener()).ok());
  exchange.Open(1, 0, 0.5);
  EXPECT_EQ(reducer.weight, 0.5);
  SetGradient(2, 8);
  ASSERT_TRUE(exchange.PushUntil(0, 8).ok());
  EXPECT_EQ(shard().pushes(), 0) << "it is not the sum";
  ASSERT_TRUE(exchange.Push(0).ok());
  ASSERT_TRUE(exchange.Push(2).ok());
  EXPECT_EQ(reducer.offered, (std::set<size_t>{0})) << "buffers go as they are";
  // Of tensor 0 this rank has a gradient, of tensor 1 another one.
  std::thread others([&] {
    SetGradient(0, 100);
    reducer.Reduced(0, true);
    SetGradient(1, 200);
    reducer.Reduced(1, true);
  });
  ASSERT_TRUE(exchange.AwaitPushes(wait()).ok());
  others.join();
  EXPECT_EQ(reducer.closes, 1);
  EXPECT_EQ(Pushed(0, 0), 100) << "weighed by the reducer";
  EXPECT_EQ(Pushed(0, 1), 200);
  EXPECT_EQ(Pushed(0, 2), 8);
  // A RETRY sends the sums again.
  shard().WillAnswer(Verdict::RETRY, 1, 0);
  ASSERT_TRUE(exchange.AwaitVerdict(wait(), Share(), 0).ok());
  ASSERT_TRUE(exchange.AwaitPushes(wait()).ok());
  EXPECT_EQ(Pushed(1, 1), 200);
  EXPECT_EQ(shard().completes().at(0).none_size(), 0);
}

TEST_F(StepExchangeTest, WhatNoRankOfANodeGroupHasIsNone) {
  FakeReducer reducer;
  StepExchange exchange = MakeExchange(reducer);
  ASSERT_TRUE(reducer.Form({}, exchange.listener()).ok());
  exchange.Open(1, 0, 0);
  ASSERT_TRUE(exchange.Push(0).ok());
  EXPECT_TRUE(reducer.offered.empty()) << "a rank without data has no gradient";
  reducer.Reduced(0, true);
  reducer.Reduced(1, false);
  ASSERT_TRUE(exchange.AwaitPushes(wait()).ok());
  shard().WillAnswer(Verdict::APPLY, 1, 0);
  ASSERT_TRUE(exchange.AwaitVerdict(wait(), Share(), 0).ok());
  const CompleteRequest complete = shard().completes().at(0);
  EXPECT_EQ((std::vector<uint32_t>{complete.none().begin(), complete.none().end()}),
            (std::vector<uint32_t>{1, 2}));
}

TEST_F(StepExchangeTest, ANodeGroupThatIsBrokenOrDoesNotComeEndsTheStep) {
  FakeReducer reducer;
  {
    StepExchange exchange = MakeExchange(reducer);
    ASSERT_TRUE(reducer.Form({}, exchange.listener()).ok());
    exchange.Open(1, 0, 1);
    const absl::Status late = exchange.AwaitPushes([](const std::function<bool()>&) {
      return absl::DeadlineExceededError("pushing: nothing for 10 s");
    });
    EXPECT_EQ(late, absl::DeadlineExceededError(
                        "pushing: nothing for 10 s; rank 1 has not given its gradient"));
    EXPECT_EQ(reducer.aborts, 1) << "the gradients may be written again";
    exchange.Open(2, 0, 1);
    reducer.to->OnBroken(absl::AbortedError("given up"));
    EXPECT_EQ(exchange.AwaitPushes(wait()), absl::AbortedError("given up"));
    EXPECT_EQ(reducer.aborts, 2);
  }
  EXPECT_EQ(reducer.aborts, 3);
  EXPECT_EQ(shard().pushes(), 0);
}

}  // namespace
}  // namespace parley
