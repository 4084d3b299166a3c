// parley-worker: trains the job's model on its part of the data, through coordinator and shards.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/grpc_connector.h"
#include "client/local_connector.h"
#include "client/session.h"
#include "common/daemon/daemon.h"
#include "common/job/job_file.h"
#include "worker/data/datasets.h"
#include "worker/describe.h"
#include "worker/fit.h"
#include "worker/last_moment.h"
#include "worker/models/network.h"
#include "worker/preemption.h"
#include "worker/trainer.h"
#include "worker/training_metrics.h"

namespace parley {
namespace {

// What a worker trains, read before it joins.
struct Workload {
  Datasets data;
  std::unique_ptr<Network> network;
};

absl::StatusOr<Workload> Prepare(const JobConfig& job) {
  auto data = OpenDatasets(job.data(), job.seed());
  if (!data.ok()) return data.status();
  auto network = MakeNetwork(job, data->train->x());
  if (!network.ok()) return network.status();
  if (absl::Status status = CheckFit(job, **network, *data); !status.ok()) return status;
  return Workload{*std::move(data), *std::move(network)};
}

int DescribeWorkload(const std::string& job_file) {
  const auto wrong = [](const absl::Status& status) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return kWrongUsage;
  };
  const auto job = LoadJob(job_file, {});
  if (!job.ok()) return wrong(job.status());
  const auto workload = Prepare(*job);
  if (!workload.ok()) return wrong(workload.status());
  const auto description = Describe(*workload->network, workload->data);
  if (!description.ok()) return wrong(description.status());
  std::printf("%s\n", description->c_str());
  return kFinished;
}

// How long after preemption_grace a worker still waits for its training thread; its membership has
// given up the coordinator before.
constexpr absl::Duration kLastWord = absl::Seconds(3);

// How the job ended for this worker, by its first cause.
int ExitWith(Daemon& daemon, const FirstCause& cause) {
  return daemon.Exit(cause.preempted() ? kPreempted : kFailed, cause.text());
}

// trace_file: empty for none.
int Train(Daemon& daemon, Preemption& preemption, const std::string& trace_file) {
  daemon.OnSignal([&](int signal) { preemption.Signal(signal); });
  // Nobody knows of this worker yet, so it can simply go.
  preemption.BreakOffBy([&](const std::string& signal) {
    daemon.Exit(kPreempted, "preempted by " + signal + " before it had joined the job");
    std::_Exit(kPreempted);
  });

  const auto workload = Prepare(daemon.job());
  const std::unique_ptr<Connector> connector = MakeLocalConnector(MakeGrpcConnector());
  Session::Options options;
  options.job = daemon.job();
  options.coordinator = daemon.flags().coordinator;
  options.address = daemon.address();
  options.metrics_address = daemon.metrics().address();
  if (!trace_file.empty()) options.trace = std::make_shared<Trace>();
  const std::shared_ptr<Trace> trace = options.trace;
  if (!absl::ParseDuration(daemon.flags().join_timeout, &options.join_timeout)) {
    return daemon.Exit(kWrongUsage, "--join_timeout: \"" + daemon.flags().join_timeout +
                                        "\" is no duration such as 60s");
  }
  auto session = Session::Join(std::move(options), *connector);
  if (!workload.ok()) {
    // The others learn why nothing will come of the job, if there is somebody to tell.
    if (session.ok()) (*session)->Fail(std::string(workload.status().message()), false);
    return daemon.Exit(kWrongUsage, workload.status());
  }
  if (!session.ok()) {
    // Another job, or another job file: what this worker was told is wrong.
    const bool wrong =
        absl::IsNotFound(session.status()) || absl::IsInvalidArgument(session.status());
    return daemon.Exit(wrong ? kWrongUsage : kFailed, session.status());
  }
  daemon.Joined((*session)->ordinal());
  daemon.TellWaits([&](WaitsReply& reply) { (*session)->TellWaits(reply); });
  const absl::Cleanup tell_no_more = [&] { daemon.TellWaits(nullptr); };  // before the session goes
  LastMoment last_moment([&] {
    const std::optional<FirstCause> cause = (*session)->failure();
    const std::string own = "preempted; the step took longer than the job has time";
    std::_Exit(cause ? ExitWith(daemon, *cause) : daemon.Exit(kPreempted, own));
  });
  if (const absl::Duration grace = PreemptionGrace(daemon.job()); grace > absl::ZeroDuration()) {
    preemption.GoOnAfter([&, grace](const std::string& signal) {
      daemon.log().Warning("told to end: goes on until a checkpoint is whole",
                           {{"signal", signal}, {"at_most", absl::FormatDuration(grace)}});
      (*session)->Preempt("preempted by " + signal);
      last_moment.SetIn(grace + kLastWord);
    });
  }
  preemption.BreakOffBy([&](const std::string& signal) {
    (*session)->Fail("preempted by " + signal, /*preempted=*/true);
  });

  TrainingMetrics metrics(daemon.metrics(), trace);
  Trainer trainer({daemon.job(), *workload->network, workload->data, **session, metrics,
                   daemon.log(), [&] { return preemption.AskedBeforeStep(); }});
  const absl::Status status = trainer.Run();
  preemption.Over();  // before the session ends
  if (trace != nullptr) {
    const absl::Status written =
        trace->WriteTo(trace_file, absl::StrCat("worker ", (*session)->ordinal()));
    if (!written.ok()) daemon.log().Warning(std::string(written.message()), {});
  }
  if (status.ok()) return daemon.Exit(kFinished, "");
  if (const std::optional<FirstCause> cause = (*session)->failure())
    return ExitWith(daemon, *cause);
  return daemon.Exit(absl::IsCancelled(status) ? kPreempted : kFailed, status);
}

int Main(int argc, char** argv) {
  CLI::App app("Trains the model of a parley job on this worker's part of the data.",
               "parley-worker");
  DaemonFlags flags;
  AddDaemonFlags(app, flags, /*with_coordinator=*/true);
  bool describe = false;
  app.add_flag(
      "--describe", describe,
      "Print the model's tensors and the number of samples as JSON, and end; contacts nobody");
  std::string trace_file;
  app.add_option("--trace", trace_file,
                 "Write what the worker did and waited for, and when, to this file at its end, for "
                 "ui.perfetto.dev");
  CLI::Option* const coordinator = app.get_option("--coordinator")->required(false);
  if (const auto code = ParseCommandLine(app, argc, argv)) return *code;
  if (describe) return DescribeWorkload(flags.job);
  if (coordinator->empty()) {
    std::fprintf(stderr, "parley-worker: --coordinator is required\n");
    return kWrongUsage;
  }

  Preemption preemption;  // outlives the daemon's thread for signals
  Daemon daemon(WORKER, flags);
  if (absl::Status status = daemon.LoadJob(); !status.ok()) return daemon.Exit(kWrongUsage, status);
  if (absl::Status status = daemon.Serve({}); !status.ok()) {
    return daemon.Exit(kWrongUsage, status);
  }
  return Train(daemon, preemption, trace_file);
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
