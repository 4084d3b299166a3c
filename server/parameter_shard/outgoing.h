#ifndef PARLEY_SERVER_PARAMETER_SHARD_OUTGOING_H_
#define PARLEY_SERVER_PARAMETER_SHARD_OUTGOING_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/connector.h"
#include "client/retrying_caller.h"
#include "client/timers.h"
#include "proto/coordinator.pb.h"
#include "server/parameter_shard/locked_shard.h"

namespace parley {

// Sends what a step leader has to send: requests to the other shards, one at a time to each, in
// order, and verdicts to the coordinator. Each is repeated until it is answered. Owned by the
// shard's process; its callbacks run on gRPC's and the timers' threads. Thread-safe.
//
// It serves one job_epoch: who follows the job into another one stops it and makes the next.
//
// Nothing grows while a receiver is away. Verdicts for the coordinator are kept up to kVerdicts;
// the oldest go first, since the progress that is sent with them says where the job is without them
// (ReportVerdicts). A report has as many of them as kReportBytes hold, and at least one, so that
// none is larger than a message may be. A shard cannot be left behind by more than a step by
// workers that follow the protocol, which pull the step's version from it; but one without slices
// can, by as many as are decided while it is slow. So it is an error when both kQueue messages and
// kQueueBytes wait.
class Outgoing : public std::enable_shared_from_this<Outgoing> {
 public:
  static constexpr size_t kVerdicts = 1024;
  static constexpr size_t kReportBytes = 4 << 20;
  static constexpr size_t kQueue = 256;
  static constexpr size_t kQueueBytes = 16 << 20;

  struct Options {
    LockedShard* shard;  // takes the answers to Close
    Connector* connector;
    Timers* timers;
    absl::Duration patience;  // of one message; then it counts as failed
    absl::Duration attempt_timeout;
    // A message was refused for good. The text says which, to whom, and why.
    std::function<void(const std::string&)> on_error;
    uint64_t seed = 0;
  };
  static std::shared_ptr<Outgoing> Make(Options options);

  // Where verdicts go; before it they wait.
  void SetCoordinator(std::shared_ptr<CoordinatorClient> coordinator,
                      std::function<CallHeader()> header);

  void Send(std::vector<ToShard> requests, const Routing& routing);
  // progress: where the job is after the last of them. It goes with the last of them alone: told
  // with an earlier one, it would have the coordinator count those after it twice or not at all. So
  // what comes together is never told in two reports; of more than one holds the newest are told.
  void Report(std::vector<Verdict> verdicts, const JobProgress& progress);
  // There is a new coordinator: it is told where the job is, also if all verdicts were told to the
  // one before.
  void ReportAgain();

  // The calls that have no answer yet, for `parley why-stuck`.
  std::vector<Wait> Waits(absl::Time now) const;

  // Nothing is sent any more; answers are ignored. The shard may go after it.
  void Stop();

  // Whether all has been answered.
  bool idle() const;

 private:
  struct Peer {
    std::string name;  // "shard-1 at HOST:PORT"
    std::string address;
    std::shared_ptr<ShardClient> client;
    std::deque<ToShard> queue;  // the first is on its way
    size_t bytes = 0;           // of those in the queue
    absl::Time since;           // when it became the first
  };

  // What one report is to tell the coordinator.
  struct Untold {
    std::deque<Verdict> verdicts;  // never empty
    size_t bytes = 0;
    std::shared_ptr<const JobProgress> progress;  // after the last one
  };

  explicit Outgoing(Options options);
  void SendFirst(uint32_t shard);
  // Sends the first of that shard's queue, which is `request`, by `method`, again and again until
  // it is answered. take: what to do with the answer, before Stop only, so this object is there
  // still; may be empty.
  template <class Request, class Reply>
  void SendRequest(uint32_t shard, const std::shared_ptr<ShardClient>& client,
                   const std::string& what, const Request& request,
                   void (ShardClient::*method)(const Request&, absl::Time, Done<Reply>),
                   std::function<void(const Reply&)> take);
  void OnAnswered(uint32_t shard, const absl::Status& status);
  void Keep(std::vector<Verdict> verdicts, const JobProgress& progress)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReportNext();
  bool stopped() const;
  RetryOptions RetriesOf(const std::string& what) const;

  const Options options_;
  RetryingCaller caller_;
  // Held while an answer is handed to the shard or the header is asked for, so that Stop can wait
  // for it.
  absl::Mutex answer_mu_;
  mutable absl::Mutex mu_ ABSL_ACQUIRED_AFTER(answer_mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::map<uint32_t, Peer> peers_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<CoordinatorClient> coordinator_ ABSL_GUARDED_BY(mu_);
  std::function<CallHeader()> header_ ABSL_GUARDED_BY(mu_);
  std::deque<Untold> untold_ ABSL_GUARDED_BY(mu_);
  size_t untold_verdicts_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<const JobProgress> progress_ ABSL_GUARDED_BY(mu_);  // after all; null: of none
  bool reporting_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time reporting_since_ ABSL_GUARDED_BY(mu_);
  bool again_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_OUTGOING_H_
