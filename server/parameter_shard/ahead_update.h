#ifndef PARLEY_SERVER_PARAMETER_SHARD_AHEAD_UPDATE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_AHEAD_UPDATE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "server/parameter_shard/buffer.h"
#include "server/parameter_shard/gathered_gradient.h"
#include "server/parameter_shard/slice_training.h"

namespace parley {

// What the open step is going to do to a trained slice, if it is decided as expected: its new
// values and optimizer state, computed beside the old ones, so that a verdict which comes later has
// but to take them. It holds all that it reads and writes, and changes nothing that others read, so
// it can be left alone at any time. Made by a TableSlice under the shard's lock; Run is called on
// another thread, without that lock. Thread-safe.
class AheadUpdate {
 public:
  struct Before {
    std::shared_ptr<const SliceTraining> training;
    std::shared_ptr<const GatheredGradient> gradient;  // all that is expected
    PinnedBuffer values;
    PinnedBuffer state;       // nullptr where there is none
    uint64_t step_count = 0;  // the optimizer's, this one included
  };
  struct After {
    std::shared_ptr<Buffer> values;
    std::shared_ptr<Buffer> state;
  };
  // update: the verdict that is expected.
  AheadUpdate(const SliceUpdate& update, Before before, After after);

  // Whether that is the verdict.
  bool Expects(const SliceUpdate& verdict) const;

  // Once; nothing where it has been called off. Takes a slice's memory past the caches: it is as
  // much as the memory gives, and nobody reads it soon.
  void Run();

  // Whether it has not begun; it never will, then.
  bool CallOff();
  bool HasEnded() const { return ended_.HasBeenNotified(); }
  // Waits for one that has begun: as long as a slice takes. What has come out of it; what it writes
  // is of use only where that is OK, and nothing of `before` is held any more.
  absl::Status Await() const;

 private:
  enum class State { kWaiting, kBegun, kCalledOff };
  template <class T>
  absl::Status Compute();

  const std::vector<uint32_t> contributors_;
  SliceUpdate update_;  // of those
  Before before_;
  After after_;
  std::atomic<State> state_ = State::kWaiting;
  absl::Status status_;  // before ended_
  absl::Notification ended_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_AHEAD_UPDATE_H_
