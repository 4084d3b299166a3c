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
//   Open    --Change: a complete one departs-------------------> Open (it counts in this attempt)
//   Open    --Change: an incomplete one that left nothing------> Open, without it, or with its place
//                                                                awaited; perhaps its quorum
//   Open    --Change: an incomplete one that may have left-----> Open, attempt + 1, verdict RETRY
//             something in a sum
//   Open    --Change: nobody would be left---------------------> next step, verdict SKIP of nobody
//   Closing --Change, whoever----------------------------------> Closing (those that count are fixed)
// clang-format on
//
// The contributors of a step are those that it was opened with, less those that departed and are
// not awaited. A place is awaited where the step waits for whoever stands behind it next: nobody
// need stand there now. Those that join meanwhile come with the next step.
//
// The quorum is all N contributors, or with b backups the first N - b of them (at least one). Of
// those with data it must have as many, or all where there are fewer. So at the end of a data epoch
// a step waits for all who have its last samples, instead of leaving out the slowest one's again
// and again, while those without data, who are complete at once, fill the quorum.
class StepGate {
 public:
  struct Options {
    bool clip = false;  // to clip_norm
    double clip_norm = 0;
    bool skip_nonfinite = false;
    uint32_t backup = 0;  // contributors that a step need not wait for
    uint32_t shards = 1;  // that answer a Close
    // Of a full step: the learning rate is multiplied by a step's total weight over it. 0: it is
    // not.
    double reference_weight = 0;
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

  // Begins a step, at attempt 0. without_data: contributors to which no samples fell; of interest
  // where there are backups.
  void Open(uint64_t step, Contributors contributors, std::set<uint32_t> without_data = {});

  uint64_t step() const { return step_; }
  uint32_t attempt() const { return attempt_; }
  bool closing() const { return closing_; }
  // Contributors of the open step; the parts of them that have not completed.
  const Contributors& contributors() const { return contributors_; }
  std::vector<std::pair<uint32_t, uint32_t>> MissingParts() const;

  // Whether who stands behind the contributor now has a part in the open attempt: not where it is
  // not of this step, nor where what its predecessor completed counts.
  bool TakesPart(uint32_t contributor) const;

  // A part of a contributor of the open attempt is complete. A repetition changes nothing.
  // InvalidArgument: the part is not of this step, or contradicts what was said before.
  absl::StatusOr<Output> Complete(const CompleteRequest& request);

  // A shard's norms. Those that nobody waits for are ignored.
  Output OnCloseReply(uint32_t shard, uint64_t step, uint32_t attempt, const CloseReply& reply,
                      const ClusterView& view);

  // A contributor of the open step, or a part of it, whose member is gone (fenced).
  struct Departure {
    uint32_t contributor = 0;
    bool awaited = false;  // the step waits for the one that comes in its place
    bool left_something =
        false;  // that the others' contributions would be added to, or a successor's
  };

  // The view has changed.
  Output Change(const std::vector<Departure>& gone);

 private:
  struct Progress {
    std::map<uint32_t, CompleteRequest> parts;  // complete ones
  };

  bool IsComplete(uint32_t contributor) const;
  bool HasQuorum() const;
  Output DecideIfComplete();
  void StartAttempt();
  Verdict MakeVerdict(Verdict::Outcome outcome) const;
  Verdict VerdictOfNobody(Verdict::Outcome outcome) const;

  const Options options_;
  uint64_t step_ = 0;
  uint32_t attempt_ = 0;
  Contributors contributors_;
  std::set<uint32_t> without_data_;
  std::map<uint32_t, Progress> progress_;
  std::vector<uint32_t> complete_;  // contributors, in the order in which they became complete
  // Complete ones that departed, and whether they are awaited in another attempt.
  std::map<uint32_t, bool> departed_;

  bool closing_ = false;
  std::vector<uint32_t> counted_;  // fixed when closing: ascending
  std::map<uint32_t, CloseReply> close_replies_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_STEP_GATE_H_
