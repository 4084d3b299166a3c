#ifndef PARLEY_SERVER_PARAMETER_SHARD_CLOCK_GATE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_CLOCK_GATE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "proto/parameter_shard.pb.h"
#include "proto/types.pb.h"

namespace parley {

// The step leader's part of Shard in bounded and async: leases the samples, numbers what is
// completed, and knows how far everybody is (docs/clocked.md). Plain state, no messages: Shard, its
// owner, calls Settle after each change and then answers whom ReplyOf and LeaseOf have an answer
// for.
//
// The transitions of a contributor:
//
// clang-format off
//   (none)  --Enter-------------------------------> Idle, at the floor
//   Idle    --Settle, samples are left------------> Leased, the clock after its own or the floor
//   Leased  --Complete APPLIED or SKIPPED---------> Idle, its samples are used, a verdict
//   Leased  --Complete REFUSED--------------------> Idle, its samples are free again
//   Idle    --Settle, all are idle, none left,
//             or a checkpoint is due--------------> at the barrier
//   barrier --EndBarrier--------------------------> Idle at the highest clock; or done, if the job is
//   any     --Change, gone or another attempt-----> (none), a lease is given back
// clang-format on
//
// Where a data epoch has fewer leases than there are contributors, those left over get one without
// samples after a barrier: they evaluate, and complete it without a verdict.
class ClockGate {
 public:
  // At `version`, the serial number of the last verdict, with `position` used until then.
  ClockGate(const JobConfig& job, uint64_t training_samples, uint64_t version,
            DataPosition position);

  // The contributor takes part from now on. A repetition changes nothing.
  void Enter(uint32_t contributor, uint32_t attempt);

  // Its clock is complete. The verdict, if this is the first time and it was not refused. A
  // repetition of the last one changes nothing. Aborted: of an earlier clock. InvalidArgument: of
  // no lease, or of other samples.
  absl::StatusOr<std::optional<Verdict>> Complete(const CompleteRequest& request);

  // Who stands in the view: contributor -> attempt. `left_something`: whether a push of its lease
  // may have been applied anywhere.
  void Change(const std::map<uint32_t, uint32_t>& present,
              const std::function<bool(uint32_t contributor)>& left_something);

  // Hands out what there is to lease, by ordinal, and sees whether there is a barrier to be made;
  // with `wants_barrier` (for a checkpoint) nothing is leased until there is one.
  void Settle(absl::Time now, bool wants_barrier = false);

  // The version that all shards have to name before anybody goes on; nullopt where there is none.
  std::optional<uint64_t> barrier() const { return barrier_; }
  // All shards have it. Settle comes next.
  void EndBarrier();

  // Never falls.
  uint64_t floor() const { return floor_; }
  // Whether all that the job asked for is done, and the last barrier is over.
  bool done() const { return done_; }

  // The answer to its last Complete, of this clock; nullptr while there is none yet.
  const CompleteReply* ReplyOf(uint32_t contributor, uint64_t clock) const;
  // What it has to do now; nullptr while there is nothing, or it has not entered.
  const Lease* LeaseOf(uint32_t contributor) const;

  struct Counts {
    uint64_t cut = 0;      // leases given back of which a push may have been applied
    uint64_t refused = 0;  // contributions of which a push was refused
    uint64_t checkpoint_barriers = 0;
    // Of all these: from when nothing was leased any more for one until all that was leased was
    // done.
    absl::Duration checkpoint_barrier_wait;
  };
  const Counts& counts() const { return counts_; }
  uint64_t version() const { return version_; }

  // For messages: a contributor with a lease, its completed clock, and since when it has had the
  // lease.
  struct AtWork {
    uint32_t contributor = 0;
    uint64_t completed = 0;
    absl::Time since;
  };
  std::vector<AtWork> at_work() const;
  bool has_entered(uint32_t contributor) const { return places_.count(contributor) != 0; }
  // Of one that has entered; else 0.
  uint32_t AttemptOf(uint32_t contributor) const;

 private:
  struct Place {
    uint32_t attempt = 0;
    uint64_t completed = 0;
    std::optional<Lease> lease;
    absl::Time since;  // it has had the lease
    // Of its last Complete, while it has not been answered, and after.
    bool has_completed = false;
    CompleteRequest complete;
    CompleteReply reply;
    bool answered = false;
    // What a barrier gave it beside its next lease.
    std::optional<uint64_t> barrier;
    EvaluationOrder evaluation;
  };

  absl::Status Check(const Place& place, const CompleteRequest& request) const;
  bool IsJobDone() const;
  // The next samples; empty where none are left.
  std::vector<SampleRange> NextSamples() const;
  void LeaseSamples(absl::Time now);
  void Give(Place& place, Lease lease, absl::Time now);
  void RaiseFloor();

  const JobConfig job_;
  const uint64_t training_samples_;
  const uint64_t nominal_;

  uint64_t version_ = 0;
  DataPosition position_;
  uint64_t last_barrier_ = 0;
  uint64_t floor_ = 0;
  std::optional<uint64_t> barrier_;
  std::optional<absl::Time> checkpoint_wanted_;  // since when nothing is leased for one
  bool done_ = false;
  std::map<uint32_t, Place> places_;
  Counts counts_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_CLOCK_GATE_H_
