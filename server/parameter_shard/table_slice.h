#ifndef PARLEY_SERVER_PARAMETER_SHARD_TABLE_SLICE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_TABLE_SLICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/job/learning_rate.h"
#include "common/job/optimizer_settings.h"
#include "common/tensor.h"
#include "common/tensor_slice.h"
#include "proto/parameter_shard.pb.h"
#include "proto/types.pb.h"
#include "server/parameter_shard/accumulator.h"
#include "server/parameter_shard/ahead_update.h"
#include "server/parameter_shard/buffer.h"
#include "server/parameter_shard/buffer_candidates.h"
#include "server/parameter_shard/owed_blocks.h"
#include "server/parameter_shard/slice_training.h"
#include "server/parameter_shard/versioned_values.h"

namespace parley {

// A slice as a checkpoint has it. Views of memory that the one who made it keeps.
struct SliceStart {
  struct State {
    std::string name;  // of OptimizerStateNames
    std::string_view bytes;
  };
  std::string_view values;
  std::vector<State> state;  // none: as before the first step
  uint64_t optimizer_steps = 0;
};

// A slice at one version, to be written into a checkpoint. Holds pins: the shard goes on meanwhile.
struct SliceSnapshot {
  struct State {
    std::string name;
    size_t offset = 0;  // in `state_buffer`; as many bytes as `values` has
  };
  uint32_t slice = 0;
  PinnedBuffer values;
  PinnedBuffer state_buffer;  // nullptr where there is no state
  std::vector<State> state;
  uint64_t optimizer_steps = 0;
};

// What a push does to a slice's values where it is applied by itself.
struct LoneUpdate {
  double scale = 1;               // of a gradient's elements
  double rate_factor = 1;         // on settings.rate
  double delay_compensation = 0;  // lambda; 0: none
  PinnedBuffer seen;              // the values that it is the gradient of, for it; may be null
};

// One slice of a shard: its versions, its optimizer state, and what has come for the open attempt.
// Owned by ParameterTable; called under the shard's lock, or by StepWork, which has the slice to
// itself. Slices of buffers have no optimizer.
class TableSlice {
 public:
  // What becomes of contributions. apart: gradients are kept apart until they are added; average: a
  // buffer of floats becomes the mean of those that are offered, else the first one. sparse: it is
  // looked whether gradients are mostly zeros, for UpdateAheadOfGradient.
  struct Reduction {
    bool apart = false;
    bool average = false;
    bool sparse = false;
  };
  // values: for what is pulled, pool: for all else; both must outlive it.
  TableSlice(const Slice& slice, const TensorSpec& tensor, const OptimizerSettings& settings,
             Reduction reduction, BufferPool* values, BufferPool* pool);

  bool set() const { return values_.set(); }
  uint64_t version() const { return values_.newest(); }
  bool buffer() const { return buffer_; }
  const std::string& name() const { return training_->name(); }
  uint64_t elements() const { return training_->elements(); }
  bool FrozenAt(const StepPlace& place) const {
    const OptimizerSettings& settings = training_->settings();
    return place.step <= settings.frozen_until_step || place.epochs_done < settings.frozen_epochs;
  }

  // Start values. InvalidArgument where sizes or names do not fit.
  absl::Status Start(uint64_t version, const SliceStart& start);

  bool Has(uint32_t contributor, uint32_t part) const;
  const std::vector<PartIdentity>& identities() const;

  // Whether a push of this part can be added; InvalidArgument says why not.
  absl::Status Check(const PartRange& range, const TensorSlice& data) const;
  // After Check, and where Has is false. scale: of gradients. Aborted, and nothing added, where it
  // is lent and has been written again while it was copied.
  absl::Status Add(const PartRange& range, const TensorSlice& data, double scale);

  // Fixes the reduced gradient (trained slices): squares by block, and whether all of it is finite.
  // Aborted as GradientAccumulator::Sum.
  absl::Status Reduce(absl::Span<const uint32_t> contributors, float divisor, SliceNorms& norms,
                      bool& finite);

  // Has `update` computed beside what there is, before it is decided: all of its contributions are
  // here (trained slices, not after Reduce). To be run on another thread. Until the attempt is over
  // an Update that it expects takes what comes of it.
  std::shared_ptr<AheadUpdate> UpdateAhead(const SliceUpdate& update);
  // The same before any of it is here, where the last step's gradient was mostly zeros, as of
  // zeros; UpdateAhead goes on from there. nullptr where it was not.
  std::shared_ptr<AheadUpdate> UpdateAheadOfGradient(const SliceUpdate& update);
  // What would take as long as Update itself is not to be begun any more.
  void CallOffAhead();
  // Then: about how many elements' time an Update takes, fewer than elements() where it was done
  // ahead.
  uint64_t ElementsLeft(const SliceUpdate& update) const;

  // A decided step with something for this slice: the optimizer's step, or a buffer's new value, of
  // those of `contributors` that offer one. Waits for one that was begun ahead. After an error the
  // slice is of no use.
  absl::Status Update(const SliceUpdate& update);
  // Instead of Add and Update: one push, after Check, as the next version. What is lent is copied.
  absl::Status ApplyAlone(const PartRange& range, const TensorSlice& data, LoneUpdate update);
  // A decided step that leaves the values as they are.
  void Raise(uint64_t step);
  // The attempt is over. What has become of the update that was to be computed ahead in it.
  enum class Ahead { kNone, kTaken, kDropped };
  Ahead Drop();

  PinnedBuffer PinVersion(uint64_t version) const { return values_.PinVersion(version); }
  // Before Snapshot: computes what steps of zeros have left undone of the state. What is computed
  // ahead meanwhile is dropped where it would leave something undone again. After an error the
  // slice is of no use.
  absl::Status Settle();
  // Of the newest version.
  SliceSnapshot Snapshot() const;
  // What a copy of all that a snapshot holds takes of the pools.
  size_t value_bytes() const { return elements() * ElementBytes(training_->dtype()); }
  size_t state_bytes() const { return state_ == nullptr ? 0 : state_->size(); }

 private:
  template <class T>
  absl::Status Train(const SliceUpdate& update);
  void UpdateBuffer(const SliceUpdate& update);
  bool TakeAhead(const SliceUpdate& update);
  // Until nothing that has begun is at work.
  void AwaitAhead();
  void DropAhead();
  template <class T>
  absl::Status SettleAs();
  AheadUpdate::Before Before(std::shared_ptr<const GatheredGradient> gradient) const;
  // owes: state may be left undone.
  AheadUpdate::After After(bool owes);

  // Constant after construction.
  const uint32_t id_;
  const bool buffer_;
  const bool average_;
  const bool sparse_;
  const std::shared_ptr<const SliceTraining> training_;
  BufferPool* const value_pool_;
  BufferPool* const pool_;

  VersionedValues values_;
  std::shared_ptr<Buffer> state_;  // nullptr where there is none
  // Of state_ and other_state_, which nobody has then but an update in flight. nullptr: nothing is
  // owed, and all lies in state_.
  std::shared_ptr<const OwedBlocks> owed_;
  uint64_t optimizer_steps_ = 0;
  GradientAccumulator gradient_;
  BufferCandidates candidates_;
  bool reduced_ = false;  // gradient_ holds the sum divided already

  std::shared_ptr<AheadUpdate> ahead_;
  std::shared_ptr<AheadUpdate> of_zeros_;  // before that
  bool mostly_zero_ = false;               // the last gradient
  Ahead became_of_ahead_ = Ahead::kNone;
  // What it writes, and between steps keeps: the memory of a slice that is always updated ahead is
  // one of two, which those who are shown it can know by now. Where others still read the former
  // one, or one that was left alone writes there, another one is taken.
  std::shared_ptr<Buffer> other_values_;
  std::shared_ptr<Buffer> other_state_;
  // What it owes; nullptr: nothing. One that does is waited for, never left alone: it writes into
  // state_, too, where no block of the newest step lies.
  std::shared_ptr<OwedBlocks> other_owed_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_TABLE_SLICE_H_
