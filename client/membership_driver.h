#ifndef PARLEY_CLIENT_MEMBERSHIP_DRIVER_H_
#define PARLEY_CLIENT_MEMBERSHIP_DRIVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/connector.h"
#include "client/coordinator_finder.h"
#include "client/member_state.h"
#include "client/membership.h"
#include "client/retrying_caller.h"
#include "client/runtime.h"
#include "client/switching_coordinator.h"

namespace parley {

// Makes the calls that a MemberState asks for and tells the listener what comes of them. Two
// threads: one for timers, which also makes the calls, and one for the listener, which may take its
// time without making heartbeats late, as may whoever reads where the coordinator is. Answers
// arrive on the connector's threads; these hold the driver as shared, since they can come after the
// Membership has gone.
class MembershipDriver : public std::enable_shared_from_this<MembershipDriver> {
 public:
  struct Joined {
    std::string coordinator_address;
    std::shared_ptr<CoordinatorClient> coordinator;  // at that address
    JoinReply reply;
    uint64_t incarnation = 0;
    int64_t pid = 0;
    std::string host;  // without an address
  };

  MembershipDriver(Membership::Options options, Connector& connector, Membership::Listener listener,
                   std::unique_ptr<CoordinatorFinder> finder, Joined joined);

  void Start();
  // No call to the listener after it. Not from the listener.
  void Stop();

  CallHeader header() const;
  const Joined& joined() const { return joined_; }
  std::shared_ptr<CoordinatorClient> coordinator() const { return coordinator_; }
  void Progress(uint64_t last_decided_step, uint64_t job_epoch);
  void Waits(uint64_t last_decided_step, uint64_t job_epoch, const std::string& what);
  void AwaitsAnswer(const std::string& what);
  void OnDisk(uint64_t bytes);
  FirstCause Fail(const std::string& why, bool preempted);
  void Preempt(const std::string& why, absl::Duration time);
  std::optional<FirstCause> failure() const;
  bool hears_coordinator() const;
  void Leave();
  void Depart();

 private:
  CallHeader Header() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lets the state look at the time and does what it wants then.
  void Pump();
  void SendHeartbeat();
  // Does not wait: it is called there once the answer has come.
  void LookForCoordinator();
  void FoundAt(const std::string& address);
  // Tells the coordinator until `deadline`; the cause that counts comes by the Watch.
  // checkpoint_time: as Preempt's; none: the job is not to go on.
  void SendFail(const std::string& reason, bool preempted,
                std::optional<absl::Duration> checkpoint_time, absl::Time deadline);
  void OpenWatch();
  void AskLeader(const std::string& address, absl::Time deadline);
  void AskStatus();
  void ScheduleTick();
  // Tells of a coordinator that is lost, or answers again.
  void TellOfCoordinator(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells the listener of the failure, or that it is expelled, once.
  void CheckFailure() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Constant after construction.
  const Membership::Options options_;
  Connector& connector_;
  const Membership::Listener listener_;
  const std::unique_ptr<CoordinatorFinder> finder_;
  const Joined joined_;
  const std::shared_ptr<Timers> timers_;
  const std::shared_ptr<Timers> listener_thread_;
  RetryingCaller caller_;
  const std::shared_ptr<SwitchingCoordinator> coordinator_;

  mutable absl::Mutex mu_;
  MemberState state_ ABSL_GUARDED_BY(mu_);
  // What heartbeats tell of the process (coordinator.proto).
  uint64_t progress_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t moves_ ABSL_GUARDED_BY(mu_) = 0;
  std::string waits_for_ ABSL_GUARDED_BY(mu_);
  uint64_t disk_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool told_end_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Time> told_lost_ ABSL_GUARDED_BY(mu_);  // since when it had not answered
  // Which calls are open.
  bool heartbeat_open_ ABSL_GUARDED_BY(mu_) = false;
  bool watch_open_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t watch_ ABSL_GUARDED_BY(mu_) = 0;  // number of the open one; former ones are given up
  bool leader_open_ ABSL_GUARDED_BY(mu_) = false;
  bool status_open_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<ShardClient> leader_ ABSL_GUARDED_BY(mu_);
  std::string leader_address_ ABSL_GUARDED_BY(mu_);
  std::string coordinator_address_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_CLIENT_MEMBERSHIP_DRIVER_H_
