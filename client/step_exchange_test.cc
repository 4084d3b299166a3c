#include "client/step_exchange.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "client/testing/quiet_membership.h"
#include "client/testing/refusing_peers.h"
#include "client/timer_thread.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

// A shard that keeps what is pushed and answers Complete with verdicts given beforehand.
class FakeShard final : public RefusingShard {
 public:
  bool JoinsCalls() const override { return joins_calls; }
  std::atomic<bool> joins_calls = false;

  void Push(const PushRequest& request, absl::Time, Done<PushReply> done) override {
    PushReply reply;
    {
      absl::MutexLock lock(&mu_);
      ++pushes_;
      scale_ = request.has_scale() ? request.scale() : 1;
      for (const SliceData& slice : request.slices()) {
        bytes_[{request.attempt(), slice.slice()}] = slice.data();
        reply.add_outcomes(ADDED);
      }
      if (!push_errors_.empty()) {
        absl::Status error = push_errors_.front();
        push_errors_.pop_front();
        return done(error);
      }
    }
    done(reply);
  }
  void Complete(const CompleteRequest& request, absl::Time, Done<CompleteReply> done) override {
    CompleteReply reply;
    {
      absl::MutexLock lock(&mu_);
      completes_.push_back(request);
      *reply.mutable_verdict() = verdicts_.front();
      for (const uint32_t slice : request.pulled()) {
        SliceData& value = *reply.add_values();
        value.set_slice(slice);
        value.set_data(absl::StrCat("value ", slice));
      }
      verdicts_.pop_front();
    }
    done(reply);
  }

  void WillAnswer(Verdict::Outcome outcome, uint64_t step, uint32_t attempt) {
    absl::MutexLock lock(&mu_);
    Verdict& verdict = verdicts_.emplace_back();
    verdict.set_outcome(outcome);
    verdict.set_step(step);
    verdict.set_attempt(attempt);
  }
  void WillRefusePush(absl::Status error) {
    absl::MutexLock lock(&mu_);
    push_errors_.push_back(std::move(error));
  }
  std::string pushed(uint32_t attempt, uint32_t slice) const {
    absl::MutexLock lock(&mu_);
    const auto found = bytes_.find({attempt, slice});
    return found == bytes_.end() ? "" : found->second;
  }
  // Of the last push.
  double scale() const {
    absl::MutexLock lock(&mu_);
    return scale_;
  }
  std::vector<CompleteRequest> completes() const {
    absl::MutexLock lock(&mu_);
    return completes_;
  }
  int pushes() const {
    absl::MutexLock lock(&mu_);
    return pushes_;
  }

 private:
  mutable absl::Mutex mu_;
  std::map<std::pair<uint32_t, uint32_t>, std::string> bytes_ ABSL_GUARDED_BY(mu_);
  std::deque<Verdict> verdicts_ ABSL_GUARDED_BY(mu_);
  std::deque<absl::Status> push_errors_ ABSL_GUARDED_BY(mu_);
  std::vector<CompleteRequest> completes_ ABSL_GUARDED_BY(mu_);
  int pushes_ ABSL_GUARDED_BY(mu_) = 0;
  double scale_ ABSL_GUARDED_BY(mu_) = 0;
};

class FakeConnector final : public Connector {
 public:
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string&) override {
    return nullptr;
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string&) override { return shard; }

  const std::shared_ptr<FakeShard> shard = std::make_shared<FakeShard>();
};

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

// One shard; three tensors of two floats, a slice each; the last is a buffer.
class StepExchangeTest : public testing::Test {
 protected:
  StepExchangeTest() : tensors_(MakeTensors()), gradients_(tensors_) {
    ClusterView view;
    view.mutable_tensors()->Assign(tensors_.begin(), tensors_.end());
    Member* member = view.add_members();
    member->set_role(SHARD);
    member->set_address("h:10");
    for (uint32_t i = 0; i < tensors_.size(); ++i) {
      Slice* slice = view.add_slices();
      slice->set_id(i);
      slice->set_tensor(i);
      slice->set_end(2);
    }
    layout_ = *SliceLayout::Make(view, tensors_, 0, 9);
    calls_.Connect(layout_.shard_addresses(), 1);
  }
  ~StepExchangeTest() override { timers_->Stop(); }

  static std::vector<TensorSpec> MakeTensors() {
    std::vector<TensorSpec> tensors(3);
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].set_name(std::string(1, static_cast<char>('a' + i)));
      tensors[i].set_dtype(F32);
      tensors[i].add_shape(2);
    }
    tensors[2].set_buffer(true);
    return tensors;
  }

  StepExchange MakeExchange(bool sum = false, size_t group_bytes = 1 << 20) {
    StepExchange::Options options;
    options.sum = sum;
    options.window.group_bytes = group_bytes;
    return StepExchange(options, tensors_, layout_, gradients_, calls_);
  }

  StepExchange MakeExchange(FakeReducer& reducer) {
    StepExchange::Options options;
    options.window.group_bytes = 1;
    options.reducer = &reducer;
    options.wake = [queue = queue_] { queue->Post([] {}); };
    return StepExchange(options, tensors_, layout_, gradients_, calls_);
  }

  void SetGradient(size_t tensor, float value) {
    const float values[2] = {value, -value};
    std::memcpy(gradients_.tensor(tensor).data(), values, sizeof(values));
  }
  // The first element that came.
  float Pushed(uint32_t attempt, uint32_t slice) const {
    const std::string bytes = shard().pushed(attempt, slice);
    float value = 0;
    if (bytes.size() == 2 * sizeof(float)) std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  FakeShard& shard() const { return *connector_.shard; }

  AnswerQueue::Wait wait() {
    return [this](const std::function<bool()>& done) {
      return queue_->RunUntil(
          done, SteadyNow() + absl::Seconds(30), [] {}, absl::Seconds(1));
    };
  }

  const std::vector<TensorSpec> tensors_;
  TensorArena gradients_;
  SliceLayout layout_;
  QuietMembership membership_;
  FakeConnector connector_;
  const std::shared_ptr<AnswerQueue> queue_ = std::make_shared<AnswerQueue>(RealRuntime());
  const std::shared_ptr<TimerThread> timers_ = std::make_shared<TimerThread>();
  ServiceCalls calls_{
      {absl::Seconds(20), absl::Seconds(2)}, connector_, membership_, queue_, timers_, 3};
};

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
