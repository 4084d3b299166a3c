#ifndef PARLEY_SERVER_PARAMETER_SHARD_STEP_WORK_H_
#define PARLEY_SERVER_PARAMETER_SHARD_STEP_WORK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/pull_turn.h"
#include "server/parameter_shard/table_slice.h"

namespace parley {

// What a decided step does to the slices of a shard that it changes, in pieces, turn by turn
// (PullTurn); the first ones small, since a forward waits for them, the others of about 1 MiB.
// Made by ParameterTable under the shard's lock. Run may be called without it, for different pieces
// at the same time: until a piece has ended, nobody else may look at its slices.
class StepWork {
 public:
  // contributors: whose gradients count, ascending; weights: those of them whose buffers count, and
  // how much (above 0). settles: the slices are to be kept for a checkpoint (TableSlice::Settle).
  StepWork(SliceUpdate update, std::vector<uint32_t> contributors,
           const std::map<uint32_t, double>& weights, bool settles);

  // The turn: not before that of the slices that were added. Slices of which most was done ahead of
  // the verdict have pieces of their own, of many: to come for each by itself would take longer.
  void Add(PullTurn turn, uint32_t id, TableSlice& slice);

  uint64_t step() const { return update_.step; }
  // That are left to be updated (TableSlice::ElementsLeft).
  uint64_t elements() const { return elements_; }
  size_t pieces() const { return pieces_.size(); }
  // As TableSlice::Update.
  absl::Status Run(size_t piece) const;

  // Under the lock: that a piece has been run, with what result, and what is left.
  void End(size_t piece, const absl::Status& status);
  bool HasEnded() const { return ended_ == pieces_.size(); }
  const absl::Status& error() const { return error_; }  // the first one
  // Whether the slice is not what the step makes of it (yet).
  bool IsAtWork(uint32_t slice) const;

 private:
  struct Piece {
    PullTurn turn;
    std::vector<TableSlice*> slices;
    bool was_ahead = false;
    uint64_t elements = 0;  // left
    bool is_done = false;
  };

  const SliceUpdate update_;
  const bool settles_;
  const std::vector<uint32_t> contributors_;
  std::vector<uint32_t> with_weight_;
  std::vector<double> weights_;  // theirs
  std::vector<Piece> pieces_;
  absl::flat_hash_map<uint32_t, size_t> piece_of_;  // by slice
  uint64_t elements_ = 0;
  uint64_t next_elements_;  // of the next piece
  size_t ended_ = 0;
  absl::Status error_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_STEP_WORK_H_
