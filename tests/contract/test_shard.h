#ifndef PARLEY_TESTS_CONTRACT_TEST_SHARD_H_
#define PARLEY_TESTS_CONTRACT_TEST_SHARD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/connector.h"
#include "client/membership.h"
#include "client/retrying_caller.h"
#include "client/timer_thread.h"
#include "common/worker_threads.h"
#include "proto/job.pb.h"
#include "server/parameter_shard/locked_shard.h"
#include "server/parameter_shard/outgoing.h"

namespace parley {

// A shard as its main would run it, without files: joins, follows the coordinator's states, sends
// what the core has to send. Its surroundings run on one thread of its own.
class TestShard {
 public:
  // The values of a slice in a checkpoint's folder. On the shard's own thread.
  using Checkpoint = std::function<std::string(const std::string& folder, const TensorSpec& tensor,
                                               const Slice& slice)>;

  // incarnation: with which it joins; 0 for a random one. memory: for its values, as
  // ShardResources; where it is there, steps are carried out later, as large ones are.
  TestShard(const JobConfig& job, Connector& connector, Checkpoint checkpoint,
            uint64_t incarnation = 0, MemorySource* memory = nullptr);
  ~TestShard();

  // Makes no more calls and answers those that are parked. Idempotent.
  void Stop();

  // What its address serves.
  LockedShard& shard() { return shard_; }

  absl::Status Join(const std::string& coordinator, const std::string& address);

  uint32_t ordinal() const { return membership_->ordinal(); }
  // Waits, for a minute at most, until it is in this job_epoch.
  bool AwaitEpoch(uint64_t job_epoch);
  // Waits for the job's end: the cause's text, or "" where it has finished.
  std::string AwaitEnd();

 private:
  ShardResources ResourcesOf(MemorySource* memory);
  std::shared_ptr<Outgoing> outgoing();
  void OnNews();
  void OnState(const WatchReply& state);
  void StartEpoch(const ClusterView& view);
  absl::Status Load(const ClusterView& view);
  void TickAgain();
  void End(const std::string& cause);

  const JobConfig job_;
  Connector& connector_;
  const Checkpoint checkpoint_;
  const uint64_t incarnation_;
  const std::shared_ptr<TimerThread> timers_ = std::make_shared<TimerThread>();
  RetryingCaller caller_;
  WorkerThreads later_{1};
  LockedShard shard_;
  std::unique_ptr<Membership> membership_;  // until Stop

  // The timers' thread's.
  bool joined_ = false;
  std::optional<WatchReply> early_;  // the state that came before
  uint64_t job_epoch_ = 0;
  uint64_t ready_epoch_ = 0;  // of which it has reported that it is ready

  absl::Mutex mu_;
  // What is sent in the present job_epoch.
  std::shared_ptr<Outgoing> outgoing_ ABSL_GUARDED_BY(mu_);
  std::optional<std::string> end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_TESTS_CONTRACT_TEST_SHARD_H_
