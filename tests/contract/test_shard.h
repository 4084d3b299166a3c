#ifndef PARLEY_TESTS_CONTRACT_TEST_SHARD_H_
#define PARLEY_TESTS_CONTRACT_TEST_SHARD_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/connector.h"
#include "client/membership.h"
#include "client/retrying_caller.h"
#include "client/timer_thread.h"
#include "proto/job.pb.h"
#include "server/parameter_shard/locked_shard.h"
#include "server/parameter_shard/outgoing.h"

namespace parley {

// A shard as its main would run it, without checkpoints: joins, follows the coordinator's states,
// sends what the core has to send. Its surroundings run on one thread of its own.
class TestShard {
 public:
  TestShard(const JobConfig& job, Connector& connector);
  ~TestShard();

  // Makes no more calls and answers those that are parked. Idempotent.
  void Stop();

  // What its address serves.
  LockedShard& shard() { return shard_; }

  absl::Status Join(const std::string& coordinator, const std::string& address);

  uint32_t ordinal() const { return membership_->ordinal(); }
  // Waits for the job's end: the cause's text, or "" where it has finished.
  std::string AwaitEnd();

 private:
  void OnNews();
  void OnState(const WatchReply& state);
  void TickAgain();
  void End(const std::string& cause);

  const JobConfig job_;
  Connector& connector_;
  const std::shared_ptr<TimerThread> timers_ = std::make_shared<TimerThread>();
  RetryingCaller caller_;
  LockedShard shard_;
  const std::shared_ptr<Outgoing> outgoing_;
  std::unique_ptr<Membership> membership_;  // until Stop
  bool reported_ready_ = false;             // timers' thread

  absl::Mutex mu_;
  std::optional<std::string> end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_TESTS_CONTRACT_TEST_SHARD_H_
