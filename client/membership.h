#ifndef PARLEY_CLIENT_MEMBERSHIP_H_
#define PARLEY_CLIENT_MEMBERSHIP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connector.h"
#include "client/runtime.h"
#include "common/job_state.h"
#include "proto/coordinator.pb.h"

namespace parley {

// A process's place in a job: joins the coordinator, renews the lease, keeps a Watch open, and
// finds out when the coordinator is lost. Shards and workers have one each. Thread-safe.
class Membership {
 public:
  struct Options {
    std::string job;
    std::string job_fingerprint;
    Role role = ROLE_UNSPECIFIED;
    std::string coordinator;  // host:port, or file:PATH of the coordinator's address file
    // host:port of this process's gRPC server, and of no other process; empty where it has none:
    // messages say then on which machine it runs.
    std::string address;
    std::string metrics_address;
    absl::Duration liveness = absl::Seconds(10);
    absl::Duration autonomy = absl::ZeroDuration();   // of this side, once the coordinator is lost
    absl::Duration join_timeout = absl::Seconds(60);  // for a coordinator that is not up yet
    // Whether to wait, as long, for a place: that of a member that is lost is free when its lease
    // has ended.
    bool wait_for_place = false;
    bool again = false;  // this process had a place in this run of the job before
    // Told what who looks after this process should know of its way to the coordinator, a line of
    // its log each time: that it is not taken in, and why (first, when the reason is another one,
    // and every ten minutes); that the coordinator is lost; that it answers again. On the thread
    // that joins, then on the listener's. Empty: nobody is told.
    std::function<void(const std::string& news)> coordinator_news;
    // Asked before each attempt to join: whether to make none any more. Empty: no.
    std::function<bool()> gives_up;
    std::shared_ptr<Runtime> runtime = RealRuntime();
    // Where the coordinator is now: host:port. Empty: `coordinator` says it. May take as long as it
    // will, and be at it still when the membership has gone.
    std::function<absl::StatusOr<std::string>()> resolve;
  };

  // What happens to the job. Both run on a thread of the membership, one at a time, never under a
  // lock.
  struct Listener {
    // The state has a new revision: phase, view, checkpoint order. Not called for FAILED.
    std::function<void(const SharedJobState&)> on_state;
    // The job has failed; called once, the last call. The cause's text is the same in every
    // process.
    std::function<void(const FirstCause&)> on_failed;
    // The job goes on without this member: its lease ended while it was stopped or cut off. The
    // last call; the process may join anew. Empty: it counts as failed.
    std::function<void()> on_expelled;
  };

  // Joins, waiting up to join_timeout for the coordinator to come up. The codes of Join in
  // coordinator.proto; DeadlineExceeded (with the address, and how long it was tried) where nobody
  // answers; Cancelled where it gives up.
  static absl::StatusOr<std::unique_ptr<Membership>> Join(Options options, Connector& connector,
                                                          Listener listener);
  virtual ~Membership() = default;

  virtual uint64_t member() const = 0;
  virtual uint32_t ordinal() const = 0;

  // For the member's own calls: job, member, incarnation and the epochs of the newest view.
  virtual CallHeader header() const = 0;

  // The calls of a member to the coordinator go through this one.
  virtual std::shared_ptr<CoordinatorClient> coordinator() const = 0;

  // The training thread calls it while it gets on; heartbeats carry the count. The step is of that
  // job_epoch, and does not count where a later one is known: the job went back before it. Step 0:
  // none.
  virtual void Progress(uint64_t last_decided_step, uint64_t job_epoch) = 0;

  // The same where it waits for others: this process is not to blame if the job stands still, but
  // does not get on either. what: it waits for, where that has taken long; may be empty.
  virtual void Waits(uint64_t last_decided_step, uint64_t job_epoch, const std::string& /*what*/) {
    Progress(last_decided_step, job_epoch);
  }

  // What this process has asked of another one, and in vain for long: the others may only wait for
  // that. Empty: nothing. Says nothing of its progress. Any thread.
  virtual void AwaitsAnswer(const std::string& /*what*/) {}

  // So many bytes of a checkpoint more have been read or written. Any thread.
  virtual void OnDisk(uint64_t /*bytes*/) {}

  // Whether the coordinator answers: then it ends a job that gets nowhere, and says who is to
  // blame; no member need put an end to waiting for another one. Any thread.
  virtual bool hears_coordinator() const { return false; }

  // This process cannot go on: tells the coordinator, which makes it the first cause unless there
  // is one already, and waits for the cause that counts, up to liveness, and for a coordinator that
  // is away `autonomy` longer unless the process was `preempted`. Returns it. Where the job has
  // gone on without this member (on_expelled) it ends for this one with `reason`, at once.
  virtual FirstCause Fail(const std::string& reason, bool preempted) = 0;

  // This process was told to end ("preempted by SIGTERM"): tells the coordinator, which lets the
  // job go on until a checkpoint is whole, for `time` at most. Does not wait: the process goes on
  // with its work, and hears of the end as of any other. Where the coordinator has not ended the
  // job a little after that time, or the job has gone on without this member, it ends for this one
  // with `reason`. A second call counts where it leaves less time, and does nothing else.
  virtual void Preempt(const std::string& reason, absl::Duration time) = 0;

  // The first cause if the job has failed.
  virtual std::optional<FirstCause> failure() const = 0;

  // Leaves after the end of the job (FINISHED or FAILED). Best effort, at most liveness.
  virtual void Leave() = 0;

  // Leaves before the end, since the coordinator has told this member to go (WatchReply.drained):
  // it has no part in what the job does next. Repeats the call, for liveness at most.
  virtual void Depart() { Leave(); }
};

}  // namespace parley

#endif  // PARLEY_CLIENT_MEMBERSHIP_H_
