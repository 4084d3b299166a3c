#ifndef PARLEY_SERVER_PARAMETER_SHARD_AHEAD_UPDATE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_AHEAD_UPDATE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "server/parameter_shard/buffer.h"
#include "server/parameter_shard/gathered_gradient.h"
#include "server/parameter_shard/owed_blocks.h"
#include "server/parameter_shard/slice_training.h"

namespace parley {

// What the open step is going to do to a trained slice, if it is decided as expected: its new
// values and optimizer state, computed beside the old ones, so that a verdict which comes later has
// but to take them. It holds all that it reads and writes, and changes nothing that others read, so
// it can be left alone at any time, but for one that owes (After::owed). Made by a TableSlice under
// the shard's lock; Run is called on another thread, without that lock. Thread-safe.
//
// Where a gradient is expected to be mostly zeros, as that of an embedding, most of the work needs
// no gradient: one update is made without it, as of zeros, and when the gradient is here a second
// one that goes on from there, and does anew what is of something else. The one of zeros leaves
// undone what it can of the optimizer state (OwedBlocks), which is a third of what it would read
// and write.
class AheadUpdate {
 public:
  struct Before {
    std::shared_ptr<const SliceTraining> training;
    std::shared_ptr<const GatheredGradient> gradient;  // all that is expected; nullptr: zeros
    PinnedBuffer values;
    PinnedBuffer state;  // nullptr where there is none
    // Of `state` and After::state. nullptr: nothing is owed, and all lies in `state`.
    std::shared_ptr<const OwedBlocks> owed;
    uint64_t step_count = 0;  // the optimizer's, this one included
  };
  struct After {
    std::shared_ptr<Buffer> values;
    std::shared_ptr<Buffer> state;
    // As Before::owed, of the step's end, when After::state is the place of the newest step. A
    // block that is written goes where it does not lie: for some that is Before::state's memory,
    // `former_state`. nullptr: nothing is to be owed, and all is written to `state`; then nothing
    // is owed before either.
    std::shared_ptr<OwedBlocks> owed;
    std::shared_ptr<Buffer> former_state;
  };
  // update: the verdict that is expected; of zeros, its step and rate are. of_zeros: of the same
  // step and rate, into the same memory; or nullptr.
  AheadUpdate(const SliceUpdate& update, Before before, After after,
              std::shared_ptr<AheadUpdate> of_zeros = nullptr);

  // Whether that is the verdict.
  bool Expects(const SliceUpdate& verdict) const;
  // Of one of zeros: whether one that expects this can go on from it.
  bool CanBegin(const SliceUpdate& update) const;

  // Once; nothing where it has been called off. Takes a slice's memory past the caches: it is as
  // much as the memory gives, and nobody reads it soon.
  void Run();

  // Whether it has not begun; it never will, then.
  bool CallOff();
  // Whether next to nothing is left to do: most of it has been done of zeros.
  bool IsShort() const { return of_zeros_ != nullptr && of_zeros_->state_ == State::kBegun; }
  // Whether all that can be done of zeros is.
  bool IsNearlyDone() const { return of_zeros_ != nullptr && of_zeros_->HasEnded(); }
  bool HasEnded() const { return ended_.HasBeenNotified(); }
  // Waits for one that has begun: as long as a slice takes. What has come out of it; what it writes
  // is of use only where that is OK, and nothing of `before` is held any more.
  absl::Status Await() const;
  // After Await.
  bool WasMostlyZero() const { return mostly_zero_; }

 private:
  enum class State { kWaiting, kBegun, kCalledOff };
  // only_new: what the one of zeros has done stays.
  template <class T>
  absl::Status Compute(bool only_new);
  // The step of the elements begin .. begin + sum.size(), within one tile.
  template <class T>
  absl::Status Apply(uint64_t begin, absl::Span<const float> sum, absl::Span<float> scratch);
  template <class T>
  absl::Status ApplyTo(uint64_t begin, absl::Span<const float> sum, absl::Span<float> scratch,
                       const Buffer* from, Buffer* to, uint32_t owed);

  const std::vector<uint32_t> contributors_;
  SliceUpdate update_;  // of those
  Before before_;
  After after_;
  const std::shared_ptr<AheadUpdate> of_zeros_;
  std::atomic<State> state_ = State::kWaiting;
  absl::Status status_;       // before ended_
  bool mostly_zero_ = false;  // this too
  absl::Notification ended_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_AHEAD_UPDATE_H_
