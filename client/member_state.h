#ifndef PARLEY_CLIENT_MEMBER_STATE_H_
#define PARLEY_CLIENT_MEMBER_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/job_state.h"
#include "proto/coordinator.pb.h"

namespace parley {

// What a member knows of its job, as a plain state machine: no clock, thread or call. The driver
// (client/membership_driver.h) owns it, makes the calls that wants_...() ask for, and reports how
// they ended. Not thread-safe.
//
//   member -> failed     the coordinator told the first cause, or refused this member for good
//   member -> doubting   no heartbeat for liveness / 2: the step leader is asked what it knows
//   doubting -> member   a heartbeat succeeded
//   doubting -> lost     none for liveness: the coordinator is lost; this side goes on without it
//                        for `autonomy`, looking for it where it may have started anew
//   lost -> member       a heartbeat succeeded
//   doubting, lost -> failed  the step leader answered with the first cause; or, lost: this is the
//   step
//                        leader, or nobody can be asked, or the time to ask is over
//   member -> fenced     the coordinator does not know this incarnation any more: it is asked for
//                        the job's status
//   fenced -> member     a heartbeat succeeded: it was a former coordinator that did not know it
//   fenced -> expelled   the job goes on without this member, which may join anew
//   fenced -> failed     it told the first cause, or nothing within liveness / 4
//   any -> failed        this process was preempted, and the job has not ended in time; or it is
//                        fenced, or expelled, before or after that
//   any -> ended         the job has finished, or this member has left: nothing is lost any more
class MemberState {
 public:
  struct Options {
    absl::Duration liveness;
    absl::Duration autonomy = absl::ZeroDuration();
    Role role = ROLE_UNSPECIFIED;
    uint32_t ordinal = 0;
    std::string self;         // "worker 1 at HOST:PORT (pid 7)"
    std::string coordinator;  // host:port
    uint64_t generation = 0;  // of the coordinator that has taken this member in
    bool may_rejoin = false;  // whether `expelled` is of use; else it is a failure
  };

  MemberState(Options options, absl::Time joined);

  // The driver calls it often (every liveness / 40); a gap of more than liveness / 2 between two
  // calls means that this process was stopped, and silence in that time was its own: it then grants
  // liveness / 4 to find out.
  void Tick(absl::Time now);

  // Heartbeats: one at a time, each with heartbeat_timeout.
  bool wants_heartbeat(absl::Time now) const { return !over() && now >= next_heartbeat_; }
  absl::Duration heartbeat_timeout() const { return options_.liveness / 4; }
  // generation: of the coordinator that answered; one below what was seen before is a former one,
  // whose answer counts as none.
  void OnHeartbeat(absl::Status status, absl::Time sent, absl::Time now, uint64_t generation = 0);
  // Whether the coordinator may have moved: its address is to be looked up.
  bool may_have_moved() const { return missed_heartbeats_ > 0; }
  // It is found there from now on.
  void Moved(const std::string& coordinator) { options_.coordinator = coordinator; }

  // The Watch: one at a time, always open, for about liveness. Returns whether the reply is news
  // for the listener.
  bool wants_watch(absl::Time now) const {
    return !over() && !ended_ && !fenced() && now >= next_watch_;
  }
  bool OnWatch(const absl::StatusOr<SharedJobState>& told, absl::Time now);
  // Whether the coordinator has told, or tries to, what this member has not heard: a heartbeat was
  // answered with this revision. The open Watch may be lost, and another one is to be opened.
  bool MissesNews(uint64_t revision) const { return revision > watched_->revision(); }

  // The step leader is to be asked WhyFailed at leader_address until ask_deadline.
  bool wants_leader(absl::Time now) const;
  std::string leader_address() const;
  absl::Time ask_deadline() const;
  void OnLeaderAnswer(const absl::StatusOr<FirstCause>& cause, absl::Time now);

  // The coordinator is to be asked for the job's status.
  bool wants_status(absl::Time now) const { return fenced() && !over() && now >= next_status_; }
  absl::Duration status_timeout() const { return options_.liveness / 4; }  // of one call
  void OnStatus(const absl::StatusOr<GetStatusReply>& reply, absl::Time now);

  // The last decided step as this process knows it, in that job_epoch. Of a former one it is not
  // looked at: the job went back before it.
  void Progress(uint64_t last_decided_step, uint64_t job_epoch);

  // This process cannot go on and the coordinator has not said what counts.
  void FailWith(const std::string& reason, bool preempted);

  // This process was told to end, and the job may go on until then. False: it was before, with no
  // more time, or there is no job any more; of an expelled member this is the end then.
  bool Preempt(const std::string& reason, absl::Time until);

  // This member leaves.
  void Leave() { left_ = true; }
  bool has_left() const { return left_; }

  // Once set they stay. Both: it was told to end when it was expelled.
  const std::optional<FirstCause>& failure() const { return failure_; }
  bool expelled() const { return expelled_; }
  // Whether the coordinator is what was lost: no use in calling it.
  bool coordinator_lost() const { return lost_; }
  absl::Time last_contact() const { return last_contact_; }
  // Whether it answered the last heartbeat, to a member that it knows.
  bool hears_coordinator() const {
    return missed_heartbeats_ == 0 && !lost_ && !fenced() && !over() && !ended_;
  }
  uint64_t last_decided_step() const { return last_decided_step_; }
  uint64_t missed_heartbeats() const { return missed_heartbeats_; }
  const WatchReply& watched() const { return *watched_; }

 private:
  bool over() const { return failure_.has_value() || expelled_ || left_; }
  bool fenced() const { return !fence_.ok(); }
  bool is_step_leader() const;
  uint64_t job_epoch() const { return watched_->view().job_epoch(); }
  void Fail(const std::string& what, bool preempted);
  void OnRefusal(const absl::Status& status, absl::Time now);

  // One that may rejoin has the time to find out whether that is of use.
  absl::Time status_deadline() const {
    return fenced_at_ + (options_.may_rejoin ? options_.liveness : status_timeout());
  }
  absl::Time alone_until() const { return last_contact_ + options_.liveness + options_.autonomy; }

  Options options_;
  SharedJobState watched_ = std::make_shared<const WatchReply>();
  absl::Time last_tick_;
  absl::Time last_contact_;  // the last heartbeat that succeeded
  absl::Time grace_until_;   // the coordinator is not lost before
  absl::Time next_heartbeat_;
  absl::Time next_watch_;
  absl::Time next_ask_;
  absl::Time fenced_at_;
  absl::Time next_status_;
  absl::Status fence_;
  uint64_t missed_heartbeats_ = 0;  // in a row
  uint64_t generation_ = 0;         // the highest one seen
  uint64_t last_decided_step_ = 0;
  bool lost_ = false;
  bool ended_ = false;  // the job has finished
  bool left_ = false;
  bool expelled_ = false;
  struct Preemption {
    std::string reason;
    absl::Time until;
  };
  std::optional<Preemption> preemption_;
  std::optional<FirstCause> failure_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_MEMBER_STATE_H_
