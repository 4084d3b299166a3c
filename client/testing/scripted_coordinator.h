#ifndef PARLEY_CLIENT_TESTING_SCRIPTED_COORDINATOR_H_
#define PARLEY_CLIENT_TESTING_SCRIPTED_COORDINATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/connector.h"
#include "client/testing/refusing_peers.h"
#include "common/clock/await.h"

namespace parley {

// A coordinator, and the step leader's WhyFailed, that answer as a test tells them. Watch calls are
// parked.
class ScriptedCoordinator final : public Connector,
                                  public RefusingCoordinator,
                                  public RefusingShard {
 public:
  // What they answer while `down`: nothing gets through.
  void set_down(bool down) {
    absl::MutexLock lock(&mu_);
    down_ = down;
  }
  void set_join(absl::Status status) {
    absl::MutexLock lock(&mu_);
    join_ = std::move(status);
  }
  void set_heartbeat(absl::Status status) {
    absl::MutexLock lock(&mu_);
    heartbeat_ = std::move(status);
  }
  void set_leader_cause(const std::string& text) {
    absl::MutexLock lock(&mu_);
    leader_cause_ = text;
  }
  // The same, but the answer of the Watch that is open is lost.
  void PublishUnheard(WatchReply state) {
    absl::MutexLock lock(&mu_);
    const auto is_parked = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !parked_.empty(); };
    mu_.Await(absl::Condition(&is_parked));
    lost_.swap(parked_);
    state.set_revision(++revision_);
    state_ = state;
  }
  void Publish(WatchReply state) {
    std::vector<Done<SharedJobState>> parked;
    {
      absl::MutexLock lock(&mu_);
      state.set_revision(++revision_);
      state_ = state;
      parked.swap(parked_);
    }
    const auto told = std::make_shared<const WatchReply>(state);
    for (auto& done : parked) done(told);
  }
  std::vector<std::string> connected() const {
    absl::MutexLock lock(&mu_);
    return connected_;
  }
  JoinRequest joined() const {
    absl::MutexLock lock(&mu_);
    return joined_;
  }
  int heartbeats() const {
    absl::MutexLock lock(&mu_);
    return heartbeats_;
  }
  // False: they have not come in ten seconds.
  bool AwaitHeartbeats(int count) {
    absl::MutexLock lock(&mu_);
    auto enough = [this, count]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return heartbeats_ >= count; };
    return AwaitFor(mu_, absl::Condition(&enough), absl::Seconds(10));
  }
  HeartbeatRequest last_heartbeat() const {
    absl::MutexLock lock(&mu_);
    return last_heartbeat_;
  }
  // So many are not answered.
  void set_unheard_leaves(int count) {
    absl::MutexLock lock(&mu_);
    unheard_leaves_ = count;
  }
  int departs() const {
    absl::MutexLock lock(&mu_);
    return departs_;
  }
  int leaves() const {
    absl::MutexLock lock(&mu_);
    return leaves_;
  }
  absl::Duration failed_within() const {
    absl::MutexLock lock(&mu_);
    return failed_within_;
  }
  std::string failed_with() const {
    absl::MutexLock lock(&mu_);
    return failed_with_;
  }

  int fails() const {
    absl::MutexLock lock(&mu_);
    return fails_;
  }
  void AwaitFails(int count) {
    absl::MutexLock lock(&mu_);
    auto enough = [this, count]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return fails_ >= count; };
    mu_.Await(absl::Condition(&enough));
  }

  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) override {
    absl::MutexLock lock(&mu_);
    connected_.push_back(address);
    return std::shared_ptr<CoordinatorClient>(this, [](CoordinatorClient*) {});
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    absl::MutexLock lock(&mu_);
    connected_.push_back(address);
    return std::shared_ptr<ShardClient>(this, [](ShardClient*) {});
  }

  void Join(const JoinRequest& request, absl::Time, Done<JoinReply> done) override {
    if (Down()) return done(absl::UnavailableError("nobody there"));
    absl::Status refused;
    {
      absl::MutexLock lock(&mu_);
      joined_ = request;
      refused = join_;
    }
    if (!refused.ok()) return done(refused);
    JoinReply reply;
    reply.set_member(7);
    reply.set_ordinal(1);
    done(reply);
  }
  void Heartbeat(const HeartbeatRequest& request, absl::Time, Done<HeartbeatReply> done) override {
    absl::Status status;
    {
      absl::MutexLock lock(&mu_);
      ++heartbeats_;
      last_heartbeat_ = request;
      status = down_ ? absl::UnavailableError("nobody there") : heartbeat_;
    }
    if (!status.ok()) return done(status);
    HeartbeatReply reply;
    {
      absl::MutexLock lock(&mu_);
      reply.set_revision(revision_);
    }
    done(reply);
  }
  void Watch(const WatchRequest& request, absl::Time, Done<SharedJobState> done) override {
    if (Down()) return done(absl::UnavailableError("nobody there"));
    SharedJobState state;
    {
      absl::MutexLock lock(&mu_);
      if (request.seen_revision() >= revision_) {
        parked_.push_back(std::move(done));
        return;
      }
      state = std::make_shared<const WatchReply>(state_);
    }
    done(state);
  }
  void Fail(const FailRequest& request, absl::Time, Done<FailReply> done) override {
    if (Down()) return done(absl::UnavailableError("nobody there"));
    {
      absl::MutexLock lock(&mu_);
      failed_with_ = request.reason();
      failed_within_ = absl::Microseconds(request.micros());
      ++fails_;
      // The job goes on.
      if (request.preempted() && request.checkpoint_first()) return done(FailReply());
    }
    WatchReply failed;
    failed.set_phase(FAILED);
    failed.mutable_cause()->set_text("worker 1: " + request.reason());
    Publish(failed);
    done(FailReply());
  }
  void Leave(const LeaveRequest& request, absl::Time, Done<LeaveReply> done) override {
    bool heard = true;
    {
      absl::MutexLock lock(&mu_);
      ++leaves_;
      departs_ += request.drained() ? 1 : 0;
      heard = leaves_ > unheard_leaves_;
    }
    if (!heard) return done(absl::UnavailableError("nobody there"));
    done(LeaveReply());
  }
  void WhyFailed(const WhyFailedRequest&, absl::Time, Done<WhyFailedReply> done) override {
    WhyFailedReply reply;
    {
      absl::MutexLock lock(&mu_);
      reply.mutable_cause()->set_text(leader_cause_);
    }
    if (reply.cause().text().empty()) return done(absl::UnavailableError("leader is down"));
    done(reply);
  }

 private:
  bool Down() const {
    absl::MutexLock lock(&mu_);
    return down_;
  }

  mutable absl::Mutex mu_;
  bool down_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status join_ ABSL_GUARDED_BY(mu_);
  absl::Status heartbeat_ ABSL_GUARDED_BY(mu_);
  std::string leader_cause_ ABSL_GUARDED_BY(mu_);
  uint64_t revision_ ABSL_GUARDED_BY(mu_) = 0;
  WatchReply state_ ABSL_GUARDED_BY(mu_);
  std::vector<Done<SharedJobState>> parked_ ABSL_GUARDED_BY(mu_);
  std::vector<Done<SharedJobState>> lost_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> connected_ ABSL_GUARDED_BY(mu_);
  JoinRequest joined_ ABSL_GUARDED_BY(mu_);
  HeartbeatRequest last_heartbeat_ ABSL_GUARDED_BY(mu_);
  int heartbeats_ ABSL_GUARDED_BY(mu_) = 0;
  int leaves_ ABSL_GUARDED_BY(mu_) = 0;
  int departs_ ABSL_GUARDED_BY(mu_) = 0;  // of those
  int unheard_leaves_ ABSL_GUARDED_BY(mu_) = 0;
  std::string failed_with_ ABSL_GUARDED_BY(mu_);
  absl::Duration failed_within_ ABSL_GUARDED_BY(mu_);
  int fails_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_TESTING_SCRIPTED_COORDINATOR_H_
