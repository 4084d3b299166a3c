#include "worker/training_process.h"

#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/grpc_connector.h"
#include "client/local_connector.h"
#include "common/daemon/last_moment.h"
#include "common/daemon/signals.h"
#include "common/job/job_file.h"

namespace parley {
namespace {

// How long after the job's time is over a worker still waits for its training thread; its
// membership has given up the coordinator before.
constexpr absl::Duration kLastWord = absl::Seconds(3);

// How the job ended for this worker, by its first cause.
int ExitWith(Daemon& daemon, const FirstCause& cause) {
  return daemon.Exit(cause.preempted() ? kPreempted : kFailed, cause.text());
}

}  // namespace

int Run(const TrainingProcess& process) {
  Daemon& daemon = process.daemon;
  Preemption& preemption = process.preemption;
  daemon.OnSignal([&](int signal) { preemption.Signal(signal); });
  // Nobody knows of this worker yet, so it can simply go.
  preemption.BreakOffBy([&](const std::string& signal) {
    daemon.Exit(kPreempted, "preempted by " + signal + " before it had joined the job");
    std::_Exit(kPreempted);
  });

  const absl::Status prepared = process.prepare();
  const std::unique_ptr<Connector> connector =
      MakeLocalConnector(MakeGrpcConnector(/*direct=*/true, daemon.credentials()));
  Session::Options options;
  options.job = daemon.job();
  options.role = process.role;
  options.coordinator = daemon.flags().coordinator;
  options.address = daemon.address();
  options.metrics_address = daemon.metrics().address();
  options.reduce_by = process.reduce_by;
  if (!process.trace_file.empty()) options.trace = std::make_shared<Trace>();
  const std::shared_ptr<Trace> trace = options.trace;
  options.join_timeout = daemon.flags().join_timeout;
  options.coordinator_news = daemon.coordinator_news();
  auto session = Session::Join(std::move(options), *connector);
  if (!prepared.ok()) {
    // The others learn why nothing will come of the job, if there is somebody to tell.
    if (session.ok()) (*session)->Fail(std::string(prepared.message()), false);
    return daemon.Exit(kWrongUsage, prepared);
  }
  if (!session.ok()) {
    // Another job, or another job file: what this worker was told is wrong.
    const bool wrong =
        absl::IsNotFound(session.status()) || absl::IsInvalidArgument(session.status());
    return daemon.Exit(wrong ? kWrongUsage : kFailed, session.status());
  }
  daemon.Joined((*session)->member_ordinal());
  daemon.TellWaits([&](WaitsReply& reply) { (*session)->TellWaits(reply); });
  const absl::Cleanup tell_no_more = [&] { daemon.TellWaits(nullptr); };  // before the session goes
  LastMoment last_moment([&] {
    const std::optional<FirstCause> cause = (*session)->failure();
    const std::string own = "preempted; the step took longer than the job has time";
    std::_Exit(cause ? ExitWith(daemon, *cause) : daemon.Exit(kPreempted, own));
  });
  if (const absl::Duration grace = PreemptionGrace(daemon.job()); grace > absl::ZeroDuration()) {
    preemption.GoOnAfter([&, grace, early = WarningGrace(daemon.job())](int signal) {
      const absl::Duration time = signal == SIGUSR1 ? early : grace;
      last_moment.SetIn(time + kLastWord);
      (*session)->Preempt("preempted by " + SignalName(signal), time);
      // Last: the log may lie on a disk that does not answer.
      daemon.log().Warning(
          "told to end: goes on until a checkpoint is whole",
          {{"signal", SignalName(signal)}, {"at_most", absl::FormatDuration(time)}});
    });
  }
  // The training thread asks before its next step, which does not come while it joins anew.
  preemption.DuringSteps(
      [&](const std::string& signal) { (*session)->JoinNoMore("preempted by " + signal); });
  preemption.BreakOffBy([&](const std::string& signal) {
    (*session)->Fail("preempted by " + signal, /*preempted=*/true);
  });

  TrainingMetrics metrics(daemon.metrics(), trace);
  const absl::Status status = process.train(**session, metrics);
  preemption.Over();  // before the session ends
  if (trace != nullptr) {
    const absl::Status written =
        trace->WriteTo(process.trace_file, MemberName(process.role, (*session)->member_ordinal()));
    if (!written.ok()) daemon.log().Warning(std::string(written.message()), {});
  }
  if (status.ok()) return daemon.Exit(kFinished, "");
  if (const std::optional<FirstCause> cause = (*session)->failure())
    return ExitWith(daemon, *cause);
  return daemon.Exit(absl::IsCancelled(status) ? kPreempted : kFailed, status);
}

}  // namespace parley
