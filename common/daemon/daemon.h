#ifndef PARLEY_COMMON_DAEMON_DAEMON_H_
#define PARLEY_COMMON_DAEMON_DAEMON_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/clock/clock_watch.h"
#include "common/daemon/command_line.h"
#include "common/daemon/exit_code.h"
#include "common/daemon/signals.h"
#include "common/log.h"
#include "common/metrics/metrics.h"
#include "common/rpc/refusals.h"
#include "common/rpc/server.h"
#include "common/rpc/waits_service.h"
#include "common/security/credentials.h"
#include "proto/job.pb.h"
#include "proto/types.pb.h"

namespace parley {

// "worker-1": how a member is called in logs, metrics and messages.
std::string MemberName(Role role, uint32_t ordinal);

// What all daemons have alike, in the order in which a main uses it:
//
//   CLI::App app("...", "parley-shard"); DaemonFlags flags; AddDaemonFlags(app, flags, true);
//   if (auto code = ParseCommandLine(app, argc, argv)) return *code;
//   Daemon daemon(SHARD, flags);
//   if (auto status = daemon.LoadJob(); !status.ok()) return daemon.Exit(kWrongUsage, status);
//   if (auto status = daemon.Serve({&service}); ...
//   ... join; daemon.Joined(ordinal); ... work until done or daemon's on_signal ...
//   return daemon.Exit(kFailed, cause)
//
// Made in main before any other thread. Thread-safe.
class Daemon {
 public:
  Daemon(Role role, DaemonFlags flags);

  // Reads flags.job, and takes the job's credentials from where flags say they are, or makes them
  // (not the coordinator).
  absl::Status LoadJob();

  // The coordinator's: from the job's directory. After LoadJob. Of InvalidArgument, and all others,
  // the message says what to do.
  absl::Status TakeCredentials(const std::string& job_directory);

  // Starts the gRPC server with these services, Waits, health and reflection, and /metrics. After
  // LoadJob. InvalidArgument also for an --advertise that is no address.
  absl::Status Serve(const std::vector<grpc::Service*>& services);

  // The ordinal is known: logs and metrics carry it from now on.
  void Joined(uint32_t ordinal);

  // What SIGTERM, SIGINT and SIGUSR1 do; runs on the signals' thread, also for a signal that came
  // before. Without it they are kept. A second SIGINT or SIGTERM ends the process at once (75);
  // with flags.one_sigterm a second SIGTERM does nothing, and one before a SIGINT does not count.
  void OnSignal(std::function<void(int signal)> on_signal);

  const DaemonFlags& flags() const { return flags_; }
  const JobConfig& job() const { return job_; }
  // nullptr: the job is open. After LoadJob or TakeCredentials.
  const SharedCredentials& credentials() const { return credentials_; }
  Log& log() { return log_; }
  Metrics& metrics() { return metrics_; }
  // Of calls that this process answers, by whatever way they come, into its metrics, which outlive
  // it.
  RpcObserver rpc_observer() {
    return [this](const std::string& method, int code, absl::Duration duration) {
      metrics_.ObserveRpc(method, code, duration);
    };
  }
  // Counts a stranger who does not come by gRPC, and logs one now and then.
  Refusals::Told refused() {
    return [this](absl::string_view why, const std::string& peer) { Refused(why, peer); };
  }
  // Logs what a membership or session tells of its way to the coordinator.
  std::function<void(const std::string& news)> coordinator_news() {
    return [this](const std::string& news) { log_.Warning(news); };
  }
  RpcServer& server() { return *server_; }
  // host:port at which others reach the server. After Serve.
  const std::string& address() const { return address_; }

  // What this process waits for, for `parley why-stuck` (WaitsService::SetSource). The source must
  // be taken back, with an empty one, before what it looks at goes.
  void TellWaits(WaitsService::Source source) { waits_.SetSource(std::move(source)); }

  // Prints the message as the last line on stderr, as it is, unless the code is kFinished; returns
  // the code. Where stderr takes nothing any more, after a second all the same.
  int Exit(ExitCode code, const absl::Status& why) {
    return Exit(code, std::string(why.message()));
  }
  int Exit(ExitCode code, const std::string& last_line);

 private:
  void HandleSignal(int signal);
  void Refused(absl::string_view why, const std::string& peer);
  prometheus::Counter& RefusedCounter(absl::string_view why);

  const Role role_;
  const DaemonFlags flags_;
  Log log_;
  ClockWatch::Listener clock_is_set_;
  Metrics metrics_;
  JobConfig job_;                      // set by LoadJob
  SharedCredentials credentials_;      // set by LoadJob or TakeCredentials
  WaitsReply who_;                     // of the calls above, in their order
  WaitsService waits_;                 // outlives the server
  std::unique_ptr<RpcServer> server_;  // set by Serve
  std::string address_;                // set by Serve

  absl::Mutex mu_;
  std::function<void(int)> on_signal_ ABSL_GUARDED_BY(mu_);
  int pending_signal_ ABSL_GUARDED_BY(mu_) = 0;
  int signals_seen_ ABSL_GUARDED_BY(mu_) = 0;  // by which a second one ends the process
  bool sigterm_seen_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time refused_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // as the log has it

  TerminationSignals signals_;  // last: its thread uses the rest
};

}  // namespace parley

#endif  // PARLEY_COMMON_DAEMON_DAEMON_H_
