#ifndef PARLEY_CLIENT_CLOCK_EXCHANGE_H_
#define PARLEY_CLIENT_CLOCK_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/answer_queue.h"
#include "client/push_window.h"
#include "client/pushed_tensors.h"
#include "client/service_calls.h"
#include "client/slice_layout.h"
#include "client/tensor_arena.h"
#include "proto/types.pb.h"

namespace parley {

// One contributor's side of a clock in bounded and async: the counterpart of StepExchange. Pushes
// each tensor as it comes, or, where the whole gradient is to be clipped or checked first, only
// marks it until AwaitPushes. Nothing is ever sent again: the shards apply what comes.
//
//   Open -> Push... -> AwaitPushes -> AwaitReply: closed
//
// Push: any thread. All else: the training thread.
class ClockExchange {
 public:
  struct Options {
    PushWindow::Options window;
    uint32_t step_leader = 0;  // ordinal of the shard
    bool sum = false;          // reduction SUM: gradients go as they are
    double clip_norm = 0;      // 0: not clipped
    bool skip_nonfinite = false;
    bool NeedsWholeGradient() const { return clip_norm > 0 || skip_nonfinite; }
  };

  // All must outlive it and be the same through its life.
  ClockExchange(const Options& options, const std::vector<TensorSpec>& tensors,
                const SliceLayout& layout, TensorArena& gradients, ServiceCalls& calls);
  ~ClockExchange();

  // seen: the updates that each slice, by id, had when it was pulled. has_samples: else nothing is
  // pushed, whatever its bytes are.
  void Open(uint64_t clock, uint32_t attempt, double weight, bool has_samples,
            std::vector<uint64_t> seen);

  // InvalidArgument for no tensor, FailedPrecondition where no clock is open or the tensor was
  // pushed already.
  absl::Status Push(size_t tensor);

  // Waits until the shards have answered all that was pushed.
  absl::Status AwaitPushes(const AnswerQueue::Wait& wait);
  // Then: tells the step leader what became of it, and waits for what comes next.
  absl::StatusOr<CompleteReply> AwaitReply(const AnswerQueue::Wait& wait, const Share& share,
                                           uint64_t data_epoch);

  // Bytes pushed since the last call.
  uint64_t TakePushedBytes() { return window_->TakeSentBytes(); }

 private:
  // scale: of the whole gradient, beside its weight.
  void Begin(double scale);

  const Options options_;
  const std::vector<TensorSpec>& tensors_;
  const SliceLayout& layout_;
  TensorArena& gradients_;
  ServiceCalls& calls_;
  const std::shared_ptr<PushWindow> window_;
  PushedTensors pushed_;

  // The training thread's.
  uint64_t clock_ = 0;
  uint32_t attempt_ = 0;
  double weight_ = 0;
  std::vector<uint64_t> seen_;
  bool skipped_ = false;  // not finite
};

}  // namespace parley

#endif  // PARLEY_CLIENT_CLOCK_EXCHANGE_H_
