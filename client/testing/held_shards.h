#ifndef PARLEY_CLIENT_TESTING_HELD_SHARDS_H_
#define PARLEY_CLIENT_TESTING_HELD_SHARDS_H_

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/answer_queue.h"
#include "client/connector.h"
#include "client/parameter_arena.h"
#include "client/service_calls.h"
#include "client/slice_layout.h"
#include "client/tensor_arena.h"
#include "client/testing/quiet_membership.h"
#include "client/testing/refusing_peers.h"
#include "client/timer_thread.h"
#include "common/clock/steady_now.h"
#include "common/tensor.h"

namespace parley {

// Shards that answer Push and Pull only when a test says so, and a model of equal tensors (but for
// tiny ones) of so many slices each, which lie on them in turn. Thread-safe.
class HeldShards {
 public:
  struct Held {
    size_t bytes = 0;                        // of its slices
    DataType dtype = DATA_TYPE_UNSPECIFIED;  // of the last one that was pushed
    std::string nonzero;                     // of that one
    std::vector<uint32_t> slices;
    std::function<void(absl::Status)> answer;  // OK: with what was asked for
  };

  // elements: of a slice. buffers, tiny (with ten elements): of the tensors the last ones.
  HeldShards(uint32_t shards, size_t tensors, int64_t elements, size_t slices_of_each = 1,
             size_t buffers = 0, size_t tiny = 0)
      : tensors_(
            MakeTensors(tensors, elements * static_cast<int64_t>(slices_of_each), buffers, tiny)),
        arena_(tensors_) {
    ClusterView view;
    view.mutable_tensors()->Assign(tensors_.begin(), tensors_.end());
    for (uint32_t i = 0; i < shards; ++i) {
      Member* member = view.add_members();
      member->set_role(SHARD);
      member->set_ordinal(i);
      member->set_address("h:" + std::to_string(i));
      connector_.shards.push_back(std::make_shared<Shard>());
    }
    for (uint32_t i = 0; i < tensors * slices_of_each; ++i) {
      Slice* slice = view.add_slices();
      slice->set_id(i);
      slice->set_tensor(i / static_cast<uint32_t>(slices_of_each));
      slice->set_shard(i % shards);
      slice->set_begin(i % slices_of_each * static_cast<uint64_t>(elements));
      slice->set_end(std::min(slice->begin() + static_cast<uint64_t>(elements),
                              ElementCount(tensors_[slice->tensor()])));
      for (const auto& shard : connector_.shards) {
        shard->bytes_of.push_back((slice->end() - slice->begin()) * sizeof(float));
      }
    }
    layout_ = *SliceLayout::Make(view, tensors_, 0, 9);
    calls_.Connect(layout_.shard_addresses(), 1);
  }
  ~HeldShards() {
    timers_->Stop();
    // An open call holds the shard that holds it.
    for (const auto& shard : connector_.shards) shard->Drop();
  }

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  const SliceLayout& layout() const { return layout_; }
  const TensorArena& arena() const { return arena_; }
  ParameterArena& parameters() { return *parameters_; }
  ServiceCalls& calls() { return calls_; }

  absl::Status RunUntil(const std::function<bool()>& done) {
    return queue_->RunUntil(
        done, SteadyNow() + absl::Seconds(30), [] {}, absl::Milliseconds(10));
  }

  // Calls that wait for their answer, the oldest first.
  std::vector<Held> held(uint32_t shard) const { return connector_.shards[shard]->Copy(); }
  size_t HeldBytes(uint32_t shard) const {
    size_t bytes = 0;
    for (const Held& call : held(shard)) bytes += call.bytes;
    return bytes;
  }
  int pushes(uint32_t shard) const { return connector_.shards[shard]->pushes(); }
  // How often it was told to send no more of what was called before.
  int drops(uint32_t shard) const { return connector_.shards[shard]->drops; }
  void KeepOrder(bool keeps) {
    for (const auto& shard : connector_.shards) shard->keeps_order = keeps;
  }
  // Whether they are on this machine.
  void ReadLent(bool reads) {
    for (const auto& shard : connector_.shards) shard->reads_lent = reads;
  }
  // What is pulled from now on is lent at what the count is when it is asked for.
  void LendValues(const std::atomic<uint64_t>* count) {
    for (const auto& shard : connector_.shards) shard->lent = count;
  }
  // Answers the oldest; returns its slices.
  std::vector<uint32_t> AnswerFirst(uint32_t shard) { return RefuseFirst(shard, absl::OkStatus()); }
  std::vector<uint32_t> RefuseFirst(uint32_t shard, const absl::Status& status) {
    const Held first = connector_.shards[shard]->TakeFirst();
    first.answer(status);
    return first.slices;
  }

 private:
  class Shard final : public RefusingShard {
   public:
    std::vector<size_t> bytes_of;  // each slice
    std::atomic<bool> keeps_order = false;
    bool KeepsOrder() const override { return keeps_order; }
    std::atomic<bool> reads_lent = false;
    bool ReadsLentMemory() const override { return reads_lent; }
    std::atomic<int> drops = 0;
    void DropUnsent() override { ++drops; }
    void Push(const PushRequest& request, absl::Time, Done<PushReply> done) override {
      Held held;
      for (const SliceData& slice : request.slices()) {
        held.slices.push_back(slice.slice());
        held.bytes += slice.data().size();
        held.dtype = slice.dtype();
        held.nonzero = slice.nonzero();
      }
      held.answer = [done = std::move(done)](const absl::Status& status) {
        done(status.ok() ? absl::StatusOr<PushReply>(PushReply()) : status);
      };
      absl::MutexLock lock(&mu_);
      ++pushes_;
      held_.push_back(std::move(held));
    }
    void Pull(const PullRequest& request, absl::Time, Done<PullReply> done) override {
      Held held;
      PullReply reply;
      reply.set_version(request.version());
      for (const uint32_t id : request.slices()) {
        held.slices.push_back(id);
        SliceData& slice = *reply.add_slices();
        slice.set_slice(id);
        slice.set_dtype(F32);
        slice.set_data(std::string(bytes_of[id], 'x'));
        held.bytes += slice.data().size();
      }
      held.answer = [done = std::move(done), reply](const absl::Status& status) {
        done(status.ok() ? absl::StatusOr<PullReply>(reply) : status);
      };
      absl::MutexLock lock(&mu_);
      held_.push_back(std::move(held));
    }

    std::atomic<const std::atomic<uint64_t>*> lent = nullptr;
    void PullTensors(const PullRequest& request, absl::Time deadline,
                     Done<TensorPull> done) override {
      const std::atomic<uint64_t>* const count = lent;
      if (count == nullptr) return ShardClient::PullTensors(request, deadline, std::move(done));
      ShardClient::PullTensors(
          request, deadline,
          [done = std::move(done), loan = Loan{count, *count}](absl::StatusOr<TensorPull> pulled) {
            if (pulled.ok()) {
              for (TensorSlice& slice : pulled->slices) slice.loan = loan;
            }
            done(std::move(pulled));
          });
    }

    std::vector<Held> Copy() const {
      absl::MutexLock lock(&mu_);
      return {held_.begin(), held_.end()};
    }
    Held TakeFirst() {
      absl::MutexLock lock(&mu_);
      Held first = std::move(held_.front());
      held_.pop_front();
      return first;
    }
    void Drop() {
      std::deque<Held> dropped;
      absl::MutexLock lock(&mu_);
      dropped.swap(held_);
    }
    int pushes() const {
      absl::MutexLock lock(&mu_);
      return pushes_;
    }

   private:
    mutable absl::Mutex mu_;
    std::deque<Held> held_ ABSL_GUARDED_BY(mu_);
    int pushes_ ABSL_GUARDED_BY(mu_) = 0;
  };

  class Connected final : public Connector {
   public:
    std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string&) override {
      return nullptr;
    }
    std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
      return shards[address.back() - '0'];
    }
    std::vector<std::shared_ptr<Shard>> shards;
  };

  static std::vector<TensorSpec> MakeTensors(size_t count, int64_t elements, size_t buffers,
                                             size_t tiny) {
    std::vector<TensorSpec> tensors(count);
    for (size_t i = 0; i < count; ++i) {
      tensors[i].set_name("t" + std::to_string(i));
      tensors[i].set_dtype(F32);
      tensors[i].add_shape(i + tiny >= count ? 10 : elements);
      tensors[i].set_buffer(i + buffers >= count);
    }
    return tensors;
  }

  const std::vector<TensorSpec> tensors_;
  const TensorArena arena_;
  const std::unique_ptr<ParameterArena> parameters_ = *ParameterArena::Make(tensors_);
  SliceLayout layout_;
  Connected connector_;
  QuietMembership membership_;
  const std::shared_ptr<AnswerQueue> queue_ = std::make_shared<AnswerQueue>(RealRuntime());
  const std::shared_ptr<TimerThread> timers_ = std::make_shared<TimerThread>();
  ServiceCalls calls_{
      {absl::Seconds(20), absl::Seconds(2)}, connector_, membership_, queue_, timers_, 3};
};

}  // namespace parley

#endif  // PARLEY_CLIENT_TESTING_HELD_SHARDS_H_
