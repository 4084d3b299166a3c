#ifndef PARLEY_CLIENT_STEP_EXCHANGE_H_
#define PARLEY_CLIENT_STEP_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/answer_queue.h"
#include "client/push_window.h"
#include "client/pushed_tensors.h"
#include "client/reduce/reducer.h"
#include "client/service_calls.h"
#include "client/shard_client.h"
#include "client/slice_layout.h"
#include "client/tensor_arena.h"
#include "proto/types.pb.h"

namespace parley {

// One contributor's side of a step: pushes its gradients slice by slice, tells the step leader when
// all shards have them, and sends them again when the verdict is RETRY. Gradients stay in the
// caller's arena until the verdict. Where a call is dear (ServiceCalls::JoinsCalls) the last small
// gradients for the step leader travel with that word.
//
//   Open -> Push... -> AwaitPushes -> AwaitVerdict -> APPLY or SKIP: closed
//                          ^---------------- RETRY, attempt + 1
//
// In a node group what is pushed are the sums of what all ranks push, of the slices that this one
// sends: a tensor goes when the reducer has it. They stay in the arena, over the gradients, so that
// a RETRY sends them again without adding up anew.
//
// Push, PushNonzero and PushUntil: any thread. All else: the training thread.
class StepExchange : private Reducer::Listener {
 public:
  struct Options {
    PushWindow::Options window;
    uint32_t step_leader = 0;  // ordinal of the shard
    bool sum = false;          // reduction SUM: gradients go as they are
    // Of a node group, whose composition the caller forms with listener(); null: there is none. It
    // is aborted when this ends, and when a step is given up.
    Reducer* reducer = nullptr;
    std::function<void()> wake;  // with it: has `wait` look at its condition again; any thread
  };

  // All must outlive it and be the same through its life.
  StepExchange(const Options& options, const std::vector<TensorSpec>& tensors,
               const SliceLayout& layout, TensorArena& gradients, ServiceCalls& calls);
  ~StepExchange() override;

  uint32_t step_leader() const { return options_.step_leader; }
  Reducer::Listener* listener() { return this; }

  // The gradients may be written from here on, unless shards may still read some of them
  // (is_read): then the caller recalls each before it is written.
  void Open(uint64_t step, uint32_t attempt, double weight, bool is_read = false);

  // InvalidArgument for no tensor, FailedPrecondition where no step is open or the tensor was
  // pushed already.
  absl::Status Push(size_t tensor) { return PushNonzero(tensor, {}); }
  // The same, and InvalidArgument where `nonzero` is not of the tensor's size, unless it is empty.
  absl::Status PushNonzero(size_t tensor, std::string_view nonzero);
  // The tensor's first `bytes` bytes are complete: their slices may go. Push is to follow, before
  // AwaitPushes: CheckWhole says whether it has.
  absl::Status PushUntil(size_t tensor, size_t bytes);
  absl::Status CheckWhole() const { return pushed_.CheckWhole(); }

  // Waits until the shards have all that was pushed, or the step leader will have it before it
  // hears of AwaitVerdict. In a node group, before that, until all ranks have given their
  // gradients.
  absl::Status AwaitPushes(const AnswerQueue::Wait& wait);
  // Then: tells the step leader, and waits for the verdict. The share as in CompleteRequest.
  // pulled: slices of the step leader whose values are wanted with it. On RETRY all is pushed
  // again, as the next attempt: call AwaitPushes and this once more. at_once: as in
  // CompleteRequest; then the step leader may still read the gradients, too. `wait` is called when
  // the step leader has been told.
  absl::StatusOr<Verdict> AwaitVerdict(const AnswerQueue::Wait& wait, const Share& share,
                                       uint64_t data_epoch, absl::Span<const uint32_t> pulled = {},
                                       bool at_once = false);
  // What was wanted, if it has come with the last verdict; once.
  std::optional<TensorPull> TakePulled() { return std::exchange(pulled_, std::nullopt); }

  // After a verdict that decides the step: waits until every shard that was lent gradients has
  // carried it out too. Until then they must not be written.
  absl::Status AwaitReaders(const AnswerQueue::Wait& wait);
  // Instead: the caller writes each only when it has the tensor's next values.
  void LeaveReaders() { (void)window_->TakeBorrowers(); }

  // The step is given up: no thread of ours reads the gradients any more when it returns.
  void Abandon() { window_->Abandon(); }

  // Bytes pushed since the last call.
  uint64_t TakePushedBytes() { return window_->TakeSentBytes(); }

 private:
  // Of the reducer, on its thread.
  void OnReduced(size_t tensor, bool any) override;
  void OnAllReduced() override { options_.wake(); }
  void OnShared() override { options_.wake(); }
  void OnBroken(const absl::Status& why) override;
  absl::Status AwaitReduced(const AnswerQueue::Wait& wait);
  bool Reduces(size_t tensor) const;
  // The tensor goes to the shards.
  void Send(size_t tensor, std::string_view nonzero = {});
  void Begin();
  void KeepValues(CompleteReply reply);

  const Options options_;
  const std::vector<TensorSpec>& tensors_;
  const SliceLayout& layout_;
  TensorArena& gradients_;
  ServiceCalls& calls_;
  const std::shared_ptr<PushWindow> window_;
  PushedTensors pushed_;  // by the caller
  PushedTensors sent_;    // the same, but in a node group: by any rank

  mutable absl::Mutex reducer_mu_;
  absl::Status broken_ ABSL_GUARDED_BY(reducer_mu_);  // of the group's composition

  // Pulls that wait for a step to be carried out; shared with their answers, which can come late.
  struct Readers {
    size_t open = 0;
    absl::Status error;
  };

  // The training thread's.
  std::vector<SliceData> rest_;  // of the pushes to the step leader: they travel with Complete
  std::optional<TensorPull> pulled_;
  uint64_t step_ = 0;
  uint32_t attempt_ = 0;
  double weight_ = 0;
  double scale_ = 1;  // of the open attempt's pushes
};

}  // namespace parley

#endif  // PARLEY_CLIENT_STEP_EXCHANGE_H_
