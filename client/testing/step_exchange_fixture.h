#ifndef PARLEY_CLIENT_TESTING_STEP_EXCHANGE_FIXTURE_H_
#define PARLEY_CLIENT_TESTING_STEP_EXCHANGE_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/answer_queue.h"
#include "client/connector.h"
#include "client/reduce/reducer.h"
#include "client/runtime.h"
#include "client/service_calls.h"
#include "client/slice_layout.h"
#include "client/step_exchange.h"
#include "client/tensor_arena.h"
#include "client/testing/quiet_membership.h"
#include "client/testing/refusing_peers.h"
#include "client/timer_thread.h"
#include "common/clock/steady_now.h"

namespace parley {

// One shard; three tensors of two floats, a slice each; the last is a buffer.
class StepExchangeTest : public testing::Test {
 protected:
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

  StepExchange MakeExchange(Reducer& reducer) {
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

}  // namespace parley

#endif  // PARLEY_CLIENT_TESTING_STEP_EXCHANGE_FIXTURE_H_
