#include "worker/training_process.h"

#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/grpc_connector.h"
#include "client/local_connector.h"
#include "common/daemon/last_moment.h"
#include "common/daemon/signals.h"
#include "common/job/job_file.h"

namespace parley {
namespace {

// When this process goes though its training thread hangs (in a step, a device or a file).
// How long after the job's time is over; its membership has given up the coordinator before.
constexpr absl::Duration kLastWord = absl::Seconds(3);

// How long the last line may take, where the training thread is printing it (Log::Last).
constexpr absl::Duration kLastLine = absl::Seconds(2);

// How long after the job has failed. With what it takes to find out that somebody is silent, up to
// `liveness`, it is within the twice `liveness` that are promised. Whoever is well hears of the
// failure as soon as he waits for anybody, which is at once but in the middle of a long step; and
// nothing is lost by that, since no step counts any more.
absl::Duration AfterFailure(const JobConfig& job) { return Liveness(job) * 3 / 4; }

// How the job ended for this worker, by its first cause.
ExitCode CodeOf(const FirstCause& cause) { return cause.preempted() ? kPreempted : kFailed; }
int ExitWith(Daemon& daemon, const FirstCause& cause) {
  return daemon.Exit(CodeOf(cause), cause.text());
}

// What is known of this process's end, for its last moment. Thread-safe.
class KnownEnd {
 public:
  void Failed(const FirstCause& cause) {
    absl::MutexLock lock(&mu_);
    cause_ = cause;
  }
  void Preempted() {
    absl::MutexLock lock(&mu_);
    preempted_ = true;
  }
  // The training thread has come to its end by itself, and prints its last line now.
  void Comes(int code) {
    absl::MutexLock lock(&mu_);
    coming_ = code;
  }

  // The training thread has not come to its end, or not further.
  [[noreturn]] void Go(Daemon& daemon) {
    std::optional<int> coming;
    std::optional<FirstCause> cause;
    bool preempted = false;
    {
      absl::MutexLock lock(&mu_);
      coming = coming_;
      cause = cause_;
      preempted = preempted_;
    }
    if (coming) {
      absl::SleepFor(kLastLine);
      std::_Exit(*coming);
    }
    if (cause) std::_Exit(ExitWith(daemon, *cause));
    std::_Exit(
        preempted
            ? daemon.Exit(kPreempted, "preempted; the step took longer than the job has time")
            : daemon.Exit(kFailed, absl::StrCat("the job has gone on without this process, whose "
                                                "step has not ended within ",
                                                absl::FormatDuration(StallTimeout(daemon.job())),
                                                " of that (stall_timeout)")));
  }

 private:
  absl::Mutex mu_;
  std::optional<FirstCause> cause_ ABSL_GUARDED_BY(mu_);
  bool preempted_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<int> coming_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

void AddTraceFlag(CLI::App& app, std::string& trace_file) {
  app.add_option("--trace", trace_file,
                 "Write what this process did and waited for, and when, to this file at its end, "
                 "for ui.perfetto.dev");
}

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
  // Until the session has gone, too: it waits for threads.
  KnownEnd known;
  LastMoment last_moment([&] { known.Go(daemon); });
  options.on_failed = [&](const FirstCause& cause) {
    known.Failed(cause);
    last_moment.SetIn(AfterFailure(daemon.job()));
  };
  // A slow step is given as long as the job gives it, and then it is a hung one.
  options.on_expelled = [&](std::function<bool()> still) {
    last_moment.SetIn(StallTimeout(daemon.job()), std::move(still));
  };
  auto session = Session::Join(std::move(options), *connector);
  if (!prepared.ok()) {
    // The others learn why nothing will come of the job, if there is somebody to tell.
    known.Comes(kWrongUsage);
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
  if (const absl::Duration grace = PreemptionGrace(daemon.job()); grace > absl::ZeroDuration()) {
    preemption.GoOnAfter([&, grace, early = WarningGrace(daemon.job())](int signal) {
      const absl::Duration time = signal == SIGUSR1 ? early : grace;
      known.Preempted();
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
  if (status.ok()) {
    known.Comes(kFinished);
    return daemon.Exit(kFinished, "");
  }
  if (const std::optional<FirstCause> cause = (*session)->failure()) {
    known.Comes(CodeOf(*cause));
    return ExitWith(daemon, *cause);
  }
  const ExitCode code = absl::IsCancelled(status) ? kPreempted : kFailed;
  known.Comes(code);
  return daemon.Exit(code, status);
}

}  // namespace parley
