#ifndef PARLEY_SERVER_PARAMETER_SHARD_STEP_GATE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_STEP_GATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/parameter_shard.pb.h"
#include "proto/types.pb.h"

namespace parley {

// The step leader's part of Shard: decides each step once, for all slices of all shards. Plain
// state, no messages: a method returns what is to be done. Requests have no header; Shard adds it.
//
// The transitions of the open step:
//
// clang-format off
//   Open    --Complete, contributors missing-------------------> Open
//   Open    --Complete, quorum, norms asked for----------------> Closing, Close to all shards
//   Open    --Complete, quorum, no norms-----------------------> next step, verdict APPLY
//   Closing --CloseReply, others missing-----------------------> Closing
//   Closing --last CloseReply, finite or not checked-----------> next step, verdict APPLY
//   Closing --last CloseReply, not finite----------------------> next step, verdict SKIP
//   Open    --Change: a complete one is gone-------------------> Open (it counts)
//   Open    --Change: an incomplete one, nothing in a sum------> Open without it; perhaps its quorum
//   Open    --Change: an incomplete one, may be in a sum-------> Open, attempt + 1, verdict RETRY
//   Open    --Change: one more---------------------------------> Open, one more to wait for
//   Closing --Change, whoever----------------------------------> Closing (those that count are fixed)
// clang-format on
class StepGate {
 public:
  struct Options {
    bool clip = false;  // to clip_norm
    double clip_norm = 0;
    bool skip_nonfinite = false;
    uint32_t backup = 0;  // contributors that a step need not wait for
    uint32_t shards = 1;  // that answer a Close
    bool AsksForNorms() const { return clip || skip_nonfinite; }
  };

  // What is to be done now: at most one of the two.
  struct Output {
    std::optional<CloseRequest> close;
    std::optional<Verdict> verdict;
  };

  // Contributor -> how many parts it has.
  using Contributors = std::map<uint32_t, uint32_t>;

  explicit StepGate(Options options) : options_(std::move(options)) {}

  // Begins a step, at attempt 0.
  void Open(uint64_t step, Contributors contributors);

  uint64_t step() const { return step_; }
  uint32_t attempt() const { return attempt_; }
  bool closing() const { return closing_; }
  // Contributors of the open step, and those of them whose parts have not all completed.
  const Contributors& contributors() const { return contributors_; }
  std::vector<std::pair<uint32_t, uint32_t>> MissingParts() const;

  // A part of a contributor of the open attempt is complete. A repetition changes nothing.
  // InvalidArgument: the part is not of this step, or contradicts what was said before.
  absl::StatusOr<Output> Complete(const CompleteRequest& request);

  // A shard's norms. Those that nobody waits for are ignored.
  Output OnCloseReply(uint32_t shard, uint64_t step, uint32_t attempt, const CloseReply& reply,
                      const ClusterView& view);

  // A contributor that is gone (fenced). in_a_sum: something of it may have been added to what
  // others gave.
  struct Removal {
    uint32_t contributor = 0;
    bool in_a_sum = false;
  };

  // The view has changed: these are gone, and those take part from the open step on. An ordinal may
  // be in both: its member was replaced.
  Output Change(const std::vector<Removal>& gone, const Contributors& come);

 private:
  struct Progress {
    std::map<uint32_t, CompleteRequest> parts;  // complete ones
  };

  bool IsComplete(uint32_t contributor) const;
  Output DecideIfComplete();
  Verdict MakeVerdict(Verdict::Outcome outcome) const;

  const Options options_;
  uint64_t step_ = 0;
  uint32_t attempt_ = 0;
  Contributors contributors_;
  std::map<uint32_t, Progress> progress_;
  std::vector<uint32_t> complete_;  // contributors, in the order in which they became complete
  std::set<uint32_t> removed_;      // complete ones that went: they count in this attempt only

  bool closing_ = false;
  std::vector<uint32_t> counted_;  // fixed when closing: ascending
  std::map<uint32_t, CloseReply> close_replies_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_STEP_GATE_H_
