#ifndef PARLEY_SERVER_PARAMETER_SHARD_SHARD_PROCESS_H_
#define PARLEY_SERVER_PARAMETER_SHARD_SHARD_PROCESS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/connector.h"
#include "client/membership.h"
#include "client/retrying_caller.h"
#include "client/runtime.h"
#include "client/timers.h"
#include "common/daemon/exit_code.h"
#include "common/file_system.h"
#include "common/job_state.h"
#include "common/log.h"
#include "common/metrics/metrics.h"
#include "proto/job.pb.h"
#include "server/parameter_shard/locked_shard.h"
#include "server/parameter_shard/outgoing.h"
#include "server/parameter_shard/shard_metrics.h"

namespace parley {

// A shard's life in its process: joins, follows the coordinator's states, loads and writes
// checkpoints, sends what the core has to send, and ends with the job. Run (or Start and
// HandleMail) is the main thread's; the rest is called by the membership, the timers, the signals
// and gRPC, and only leaves word for it.
class ShardProcess {
 public:
  struct End {
    ExitCode code;
    std::string last_line;  // why, unless kFinished
  };

  // What is around it: in main the real things, in tests virtual time and peers of their own. All
  // must outlive it, the connector until Stop only.
  struct Surroundings {
    JobConfig job;
    Log* log;
    Metrics* metrics;
    Connector* connector;
    FileSystem* files;
    std::shared_ptr<Runtime> runtime = RealRuntime();
    ShardResources resources = {};  // as LockedShard's
    // Ends this process at once, with this end: a thread is in the kernel with a file, may be for
    // ever (a mount whose server is gone), and the job is over. On any thread, once; empty: it
    // waits.
    std::function<void(const End& end)> leave = nullptr;
  };
  explicit ShardProcess(Surroundings surroundings);
  ~ShardProcess();

  // What the service serves.
  LockedShard& shard() { return shard_; }

  // Joins the job with this listener, as Membership::Join does.
  using Join =
      std::function<absl::StatusOr<std::unique_ptr<Membership>>(Membership::Listener listener)>;

  // Once shard() is served. Returns when the job has ended. InvalidArgument and NotFound of `join`
  // are wrong usage.
  End Run(const Join& join);

  // The pieces of Run, which never wait but for `join` and the membership: joins; sees to all that
  // has come until now. The end, if it has come to that.
  std::optional<End> Start(const Join& join);
  std::optional<End> HandleMail();

  // Adds what this process waits for, for `parley why-stuck`. Any thread, until Stop.
  void TellWaits(WaitsReply& reply);

  // The process is told to end; any thread, before Run too. SIGTERM and SIGUSR1: when the job has
  // written a checkpoint, for which it goes on: the coordinator is told here and now, whatever the
  // main thread reads. SIGINT: at once.
  void OnSignal(int signal);

  // After Run: no thread uses the surroundings from here on, and no call stays parked, so that the
  // server can shut down. Then the connector may go, and must before this object: answers that it
  // still holds come back here. Waits for the disk's thread, which writes no further tensor; after
  // Run for no longer than a moment where it can leave.
  void Stop();

 private:
  // What the main thread has to see to; later states replace earlier ones.
  struct Mail {
    SharedJobState state;
    std::optional<FirstCause> cause;
    std::string error;  // this shard cannot go on
    int signal = 0;     // that ends it at once
    bool news = false;
    bool stayed = false;  // long enough for those that ask for the cause
    bool wrote = false;   // the disk is free
    bool load = false;    // the checkpoint, once more
    bool empty() const {
      return state == nullptr && !cause.has_value() && error.empty() && signal == 0 && !news &&
             !stayed && !wrote && !load;
    }
  };

  // On any thread.
  void OnNews(bool urgent);

  // On the timers' thread.
  void HandleNews();
  void TickAgain();
  void TellWhoDoesNotAnswer(absl::Time now);
  // Leaves if the main thread has not seen by then why the job is over for this process.
  void LeaveIfUnread();

  // On the main thread.
  void AwaitMail();
  absl::Status FollowState(const WatchReply& state);
  void FollowOrder(const WatchReply& state);  // of a checkpoint
  // What that view starts from, once.
  absl::Status Load(const ClusterView& view);
  // The checkpoint could not be read, as of a file system that is away for a moment: whether it
  // will be tried once more.
  bool LoadsAgain(const absl::Status& error);
  // Why it would be of no use to load the rest of that job_epoch's checkpoint has come. Any thread.
  bool LoadIsOff(uint64_t job_epoch) const;
  void ReportReadyOnce();
  // `damage`: of the checkpoint to be loaded; empty: it is ready.
  void ReportReady(uint64_t epoch, uint64_t version, const std::string& damage);
  // Begins to write, once the version is there and nothing else is being written.
  void WriteOrderedCheckpoint();
  std::optional<End> Failed(const FirstCause& cause);
  std::optional<End> FailWith(const std::string& reason, bool preempted);

  // The sender for what is of this job_epoch, on the timers' thread. What an earlier one had to
  // send is of no use to anybody.
  std::shared_ptr<Outgoing> OutgoingOf(uint64_t job_epoch);
  std::shared_ptr<Outgoing> outgoing() const;
  void StopSending();
  // As this process has it in that epoch: what is of the time before the job went back is not to
  // pass for something later.
  CallHeader HeaderOf(uint64_t job_epoch) const;

  // On the disk's thread.
  // Whether anybody still waits for this file.
  bool IsWanted(const CheckpointOrder& order) const;
  void WriteCheckpoint(const CheckpointOrder& order, const Routing& routing,
                       const absl::StatusOr<std::vector<SliceSnapshot>>& slices);

  // From any thread.
  // How long the job may go on for it; zero: it does not.
  absl::Duration TellOfSignal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(signal_mu_);
  // Not under a lock that the end needs: the log may lie on a disk that does not answer.
  void LogThatItGoesOn(int signal, absl::Duration time);
  // The main thread sees to the end: no signal changes anything any more.
  void BeginEnd();
  // Says with which step each view comes into force: the step leader alone knows.
  void LogViews(const std::vector<Verdict>& verdicts);
  void Post(absl::FunctionRef<void(Mail&)> change);
  RetryOptions Retries(const std::string& what) const;

  const JobConfig job_;
  Log* const log_;
  FileSystem* const files_;
  const std::function<void(const End&)> leave_;
  const std::shared_ptr<Runtime> runtime_;
  const std::shared_ptr<Timers> timers_;
  Connector* const connector_;
  std::atomic<bool> news_waits_ = false;  // HandleNews is going to run
  const std::shared_ptr<Timers> disk_;    // its thread writes files; nobody waits for it
  const absl::Duration liveness_;
  ShardMetrics metrics_;
  RetryingCaller caller_;
  LockedShard shard_;
  std::unique_ptr<Membership> membership_;  // set before shard_.Start, which lets news come

  // Held while a signal is passed on, so that the membership does not go meanwhile.
  absl::Mutex signal_mu_;
  int signal_ ABSL_GUARDED_BY(signal_mu_) = 0;  // the one that leaves the least time
  // Who hears of it; nullptr: nobody yet, or no more.
  Membership* signal_to_ ABSL_GUARDED_BY(signal_mu_) = nullptr;

  mutable absl::Mutex mu_ ABSL_ACQUIRED_AFTER(signal_mu_);
  Mail mail_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Outgoing> outgoing_ ABSL_GUARDED_BY(mu_);
  uint64_t outgoing_epoch_ ABSL_GUARDED_BY(mu_) = 0;  // its job_epoch; 0: of none yet
  bool sends_ ABSL_GUARDED_BY(mu_) = true;            // until Stop, or the end of the job
  bool ends_ ABSL_GUARDED_BY(mu_) = false;            // BeginEnd
  // As HandleNews saw them last.
  std::shared_ptr<const Routing> routing_ ABSL_GUARDED_BY(mu_);
  bool ready_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t governing_view_ ABSL_GUARDED_BY(mu_) = 0;  // the last one that was logged
  // To be written as soon as the version is there.
  std::optional<CheckpointOrder> order_ ABSL_GUARDED_BY(mu_);
  absl::Time ordered_at_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;  // order_, or one that was given up meanwhile

  // Main thread only.
  std::optional<uint64_t> loaded_epoch_;     // job_epoch whose checkpoint is loaded
  std::optional<absl::Time> loading_since_;  // where it could not be read at once
  SharedJobState state_;                     // the newest; nullptr: none yet
  std::optional<uint64_t> reported_ready_;   // job_epoch
  uint64_t generation_ = 0;                  // of the coordinator whose state came last
  CheckpointOrder begun_;                    // the last one whose writing has begun
  std::optional<End> end_;  // of a failed job this process may still answer those that ask
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_SHARD_PROCESS_H_
