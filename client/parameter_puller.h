#ifndef PARLEY_CLIENT_PARAMETER_PULLER_H_
#define PARLEY_CLIENT_PARAMETER_PULLER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/arrivals.h"
#include "client/parameter_arena.h"
#include "client/reduce/reducer.h"
#include "client/service_calls.h"
#include "client/slice_layout.h"
#include "common/parallel_for.h"
#include "common/pull_turn.h"
#include "proto/types.pb.h"

namespace parley {

// Brings one version of all tensors from all shards, in parallel, in messages of a few MiB, so many
// at a time from each shard: what has come and is not copied yet is bounded by that. A shard that
// has much is asked turn by turn (PullTurn), and for little at first and more and more: a forward
// that begins while values come (Session::PullAhead) waits for the first ones. The training thread
// uses it, and it alone writes the arena.
//
// In a node group it asks shards on other machines for the slices that are this rank's, hands them
// round, and has the others' from those ranks (Reducer); what these do not have in time, or not for
// this, it asks the shards for, too.
class ParameterPuller {
 public:
  using Wait = std::function<absl::Status(const std::function<bool()>& done)>;

  // All must outlive it, and what `parallel` (for copies) uses.
  ParameterPuller(const std::vector<TensorSpec>& tensors, const SliceLayout& layout,
                  ParameterArena& parameters, ServiceCalls& calls, ParallelFor parallel = nullptr,
                  size_t group_bytes = 4 << 20, size_t calls_per_shard = 16)
      : tensors_(tensors),
        layout_(layout),
        parameters_(parameters),
        calls_(calls),
        arrived_(layout),
        parallel_(std::move(parallel)),
        group_bytes_(group_bytes),
        calls_per_shard_(calls_per_shard) {}

  ~ParameterPuller() { Abandon(); }

  // In a node group, before anything is pulled: how values are handed round. reducer: must outlive
  // it, and may be formed later.
  void ShareThrough(Reducer* reducer) { reducer_ = reducer; }

  struct What {
    uint64_t version = 0;
    // In bounded and async, for PullRequest:
    uint64_t clock = 0;
    uint32_t contributor = 0;
    bool newest = false;  // rather than the version
    // No shard writes these values again before the caller's next Complete, so that they need not
    // be copied where a shard on this machine shows them. (ParameterArena::Stands says whether that
    // was so: not for a caller that the job has gone on without.)
    bool lasting = false;
  };
  // Begin, and Await for all of it.
  absl::Status Pull(const What& what, const Wait& wait);

  // Asks for all of it, and returns at once. What was begun before is given up.
  void Begin(const What& what);
  // Whether what was begun is not here whole.
  bool pulling() const { return current_ != nullptr; }
  // What of it is waited for: the tensor's first `until` bytes.
  struct Some {
    size_t tensor = 0;
    size_t until = std::numeric_limits<size_t>::max();
  };
  // Waits until this is here, or all is. After an error nothing is begun any more, and the arena
  // can hold a mixture of versions.
  absl::Status Await(std::optional<Some> some, const Wait& wait);
  // Of what was begun; where nothing is under way it is.
  bool IsHere(size_t tensor) const { return current_ == nullptr || arrived_.HasAll(tensor); }

  // Asks for a version that is to come, so that it is here when Pull asks for it: as much as that
  // has open at a time. What comes is kept, and not looked at, until Pull takes it; a Pull of
  // another version drops it. Once more for the same version is nothing. Only of shards to which
  // calls keep their order (ServiceCalls::KeepsOrder): by gRPC, parked at each of many shards by
  // each of many workers, such calls would cost more than they save.
  void Ask(uint64_t version);

  // The slices of a shard that are to be asked of it, in order, for a call that brings their values
  // with something else; none where they are more than so many bytes.
  std::vector<uint32_t> AllOf(uint32_t shard, size_t most_bytes);
  // Their values at a version that is to be pulled: as if Ask had brought them. After AllOf.
  void Give(uint64_t version, uint32_t shard, TensorPull pulled);

  // Of the last pull: how many updates each slice, by id, has had. Empty in sync.
  const std::vector<uint64_t>& updates() const { return updates_; }

  // Bytes pulled since the last call.
  uint64_t TakePulledBytes() { return std::exchange(pulled_bytes_, 0); }

 private:
  // Of one Pull; shared with its answers, which can come after it.
  struct Progress {
    What what;
    std::vector<std::vector<PlacedSlice>> slices;  // to be asked of each shard
    std::vector<size_t> next;                      // of those
    std::vector<size_t> most;                      // by shard: bytes of the next call
    std::vector<bool> asked;                       // by shard
    std::vector<PlacedSlice> of_ranks;             // that others of the node group have
    size_t open = 0;
    bool ahead = false;      // nobody has pulled yet
    bool abandoned = false;  // Pull has returned: late replies must not touch the arena
    absl::Status error;
    // What has come while `ahead`.
    struct Answer {
      size_t shard = 0;
      std::vector<PlacedSlice> asked;
      TensorPull pulled;
    };
    std::vector<Answer> came;
  };
  std::shared_ptr<Progress> Make(const What& what, bool ahead);
  // What was asked for ahead, if it is this; a new one otherwise.
  std::shared_ptr<Progress> Resume(const What& what);

  // Which slices are asked of the shards, and which are had from other ranks, if any are.
  void Divide(bool from_ranks, Progress& progress) const;
  // Takes those that other ranks have by now; those that they will not have are asked of the
  // shards. Error: of the arena.
  absl::Status TakeOfRanks(const std::shared_ptr<Progress>& progress);
  Reducer::Values ValuesOf(const PlacedSlice& slice, const What& what) const;
  // Of a slice that is here: the other ranks may copy it, if it is this one's to give. What a shard
  // on this machine has they read there.
  void HandRound(const PlacedSlice& slice, const What& what, bool is_local);
  bool IsWhole(const Progress& progress) const {
    return progress.open == 0 && progress.of_ranks.empty();
  }
  // Those that have not been asked yet and are to be.
  void AskShards(const std::shared_ptr<Progress>& progress);
  PullTurn TurnOf(const PlacedSlice& slice) const {
    return parley::TurnOf(tensors_[slice.tensor].buffer(), slice.bytes);
  }
  // Bytes of the first call to a shard that has these.
  size_t FirstCall(absl::Span<const PlacedSlice> slices) const;
  // Asks the shard for its next slices, if some are left.
  void AskNext(size_t shard, const std::shared_ptr<Progress>& progress);
  void OnAnswer(Progress::Answer answer, const std::shared_ptr<Progress>& progress);
  // Takes answers into the arena, and asks for more.
  void TakeAndAsk(absl::Span<const Progress::Answer> answers,
                  const std::shared_ptr<Progress>& progress);
  absl::Status Take(const What& what, absl::Span<const Progress::Answer> answers);
  // Internal where the answer is not what was asked for.
  absl::Status Check(const What& what, const Progress::Answer& answer) const;

  const std::vector<TensorSpec>& tensors_;
  const SliceLayout& layout_;
  ParameterArena& parameters_;
  ServiceCalls& calls_;
  Arrivals arrived_;  // of what was begun
  const ParallelFor parallel_;
  const size_t group_bytes_;
  const size_t calls_per_shard_;
  Reducer* reducer_ = nullptr;  // in a node group
  void Abandon();

  std::shared_ptr<Progress> ahead_;
  std::shared_ptr<Progress> current_;            // begun, not here whole
  std::vector<PlacedSlice> asked_with_verdict_;  // by AllOf
  uint64_t pulled_bytes_ = 0;
  std::vector<uint64_t> updates_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARAMETER_PULLER_H_
