#ifndef PARLEY_SERVER_PARAMETER_SHARD_PARAMETER_TABLE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_PARAMETER_TABLE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/learning_rate.h"
#include "common/parallel_for.h"
#include "common/shared_memory/memory_source.h"
#include "proto/job.pb.h"
#include "proto/parameter_shard.pb.h"
#include "proto/types.pb.h"
#include "server/parameter_shard/ahead_update.h"
#include "server/parameter_shard/buffer.h"
#include "server/parameter_shard/routing.h"
#include "server/parameter_shard/step_work.h"
#include "server/parameter_shard/table_slice.h"

namespace parley {

// What a step leader's Close or verdict says about whose gradients count.
struct Counted {
  std::vector<uint32_t> contributors;  // ascending
  std::map<uint32_t, double> weights;  // of those of them that have data; a verdict's only
  double total_weight = 0;
  std::map<uint32_t, std::set<PartIdentity>> none;  // by slice

  static Counted From(const CloseRequest& close);
  static Counted From(const Verdict& verdict);

  bool Has(uint32_t contributor) const;
};

// What a shard takes from its process.
struct ShardResources {
  ParallelFor parallel;            // for what a verdict does to large slices
  MemorySource* memory = nullptr;  // for the values; nullptr: nobody else can be shown them
  // Runs a task soon, on a thread of its own. Where it is there, what a verdict does to many MiB is
  // done by it, and each slice can be pulled as soon as it is done.
  std::function<void(std::function<void()> task)> later = nullptr;
  // From so many elements on (16 MiB of float32), which take longer than to wake another thread.
  uint64_t later_from = 4 << 20;
  // Runs a task soon, several of them at the same time, on other threads than the parallel ones.
  // Where it is there, and the job asks for it (sync.update_ahead), updates are computed ahead of
  // their verdict, of slices of so many elements: below, it takes longer to hand them over.
  std::function<void(std::function<void()> task)> ahead = nullptr;
  uint64_t ahead_from = 1 << 14;
};

// Views that say which parts the contributors of the open step send. The first that has a
// contributor counts.
using OpenRoutings = absl::Span<const Routing* const>;

// All slices of one shard: what a verdict does to each of them. Owned by Shard; called under its
// lock.
class ParameterTable {
 public:
  // Settings of each slice, the reduction, and whether contributions are kept apart come from the
  // job. The resources must outlive it.
  ParameterTable(const JobConfig& job, const Routing& routing, ShardResources resources);

  // nullptr where the shard does not own it.
  TableSlice* Find(uint32_t slice);
  const std::map<uint32_t, TableSlice>& slices() const { return slices_; }

  // All slices have their start values. Once true it does not look at them again.
  bool ready() const;
  std::vector<uint32_t> NotSet() const;
  // What gives a job that writes checkpoints while it trains the memory for what they keep, and one
  // that updates ahead that for what it computes (BufferPool::Reservation), beside that of an open
  // step; null where it does neither. When a step has been decided: the sums have their memory
  // then. Nothing is updated ahead before it has been called.
  std::function<void()> Reservation() const;

  // That every part that counts is there, or was declared `none`, and nothing is in a sum that does
  // not count: else the result would silently miss or hold something. Internal, naming who and
  // what.
  absl::Status Verify(const Counted& counted, OpenRoutings routings) const;

  // The step at `place` begins; what follows is about it. rate_factor: of its learning rate.
  void Open(const StepPlace& place, double rate_factor);

  // Fixes the reduced gradient. After Verify. Aborted as GradientAccumulator::Sum.
  absl::StatusOr<CloseReply> Reduce(const Counted& counted, OpenRoutings routings);

  // What APPLY or SKIP does to the slices that it changes; to the others it is done. After Verify.
  // The table must outlive it, and Drop comes when it has ended.
  StepWork Decide(const Verdict& verdict, const Counted& counted, OpenRoutings routings);
  // All of it, here and now.
  absl::Status CarryOut(StepWork& work) const;

  // What the verdict is expected to do to a trained slice, to be computed ahead
  // (TableSlice::UpdateAhead): all has come that these contributors send. nullptr where it would do
  // nothing, nobody can know, or it does not pay.
  std::shared_ptr<AheadUpdate> UpdateAhead(uint32_t id, absl::Span<const uint32_t> contributors);
  // When a step begins: TableSlice::UpdateAheadOfGradient of all that can.
  std::vector<std::shared_ptr<AheadUpdate>> UpdateAheadOfGradients(
      absl::Span<const uint32_t> contributors);

  // Drops what has come for the open attempt. Of slices that were updated ahead, how many were
  // taken, and how many not.
  struct AheadCounts {
    uint64_t taken = 0;
    uint64_t dropped = 0;
  };
  AheadCounts Drop();

  // Before TableSlice::Snapshot: TableSlice::Settle of all. There is next to nothing to do where
  // the step's own work has done it, in parallel (StepWork).
  absl::Status Settle();

  bool kept_apart() const { return apart_; }

  // Bytes that were copied since the last call, since somebody held what an update was to change.
  size_t TakeCopied() { return pool_.TakeCopied() + value_pool_.TakeCopied(); }

 private:
  // Whether the step leaves the slice as it is.
  bool Untouched(uint32_t id, const TableSlice& slice, const Counted& counted,
                 OpenRoutings routings) const;
  // Of all slices, before some of them are waited for one by one: else others began meanwhile.
  void CallOffAhead();
  float Divisor(const Counted& counted) const;
  bool MayBeAhead(const TableSlice& slice) const;
  // What is expected of the step; none where nobody can know, or there is no room for it.
  std::optional<SliceUpdate> Expect(absl::Span<const uint32_t> contributors) const;
  // Runs body(i) for each of so many parts of a task; all at once where that pays.
  void ForEach(uint64_t elements, size_t parts, const std::function<void(size_t)>& body) const;

  const bool apart_;
  const bool sum_;  // reduction: SUM
  const bool checkpoints_;
  const uint64_t ahead_from_;  // elements; 0: nothing is updated ahead
  const StepPlace end_;        // of the job, where it is known
  const std::shared_ptr<std::atomic<bool>> has_room_ahead_;
  const ParallelFor parallel_;
  BufferPool value_pool_;  // before slices_, which use it
  BufferPool pool_;        // this one too
  std::map<uint32_t, TableSlice> slices_;
  mutable bool ready_ = false;
  StepPlace place_;  // of the open step
  double rate_factor_ = 1;

  // Of verdicts that were applied: of the last one, and what is expected of the next, which is what
  // two in turn have had. The last step of a data epoch has another weight.
  struct Expected {
    float divisor = 1;
    double rate_scale = 1;
  };
  void Learn(const Expected& last);
  std::optional<Expected> last_;
  std::optional<Expected> expected_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_PARAMETER_TABLE_H_
