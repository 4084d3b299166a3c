// parley-stage: a part of a model, or several, in a pipeline of a job.
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "client/pipeline/pipeline_links.h"
#include "client/reference/reference_service.h"
#include "common/daemon/command_line.h"
#include "common/daemon/daemon.h"
#include "common/job/job_file.h"
#include "server/pipeline_stage/stage.h"
#include "server/pipeline_stage/stage_compute.h"
#include "worker/data/datasets.h"
#include "worker/models/pipeline_model.h"
#include "worker/preemption.h"
#include "worker/process_device.h"
#include "worker/training_process.h"

int main(int argc, char** argv) {
  using namespace parley;
  CLI::App app("Computes a part of a job's model, as a stage of a pipeline.", "parley-stage");
  DaemonFlags flags;
  AddDaemonFlags(app, flags, /*with_coordinator=*/true);
  std::string trace_file;
  AddTraceFlag(app, trace_file);
  if (const std::optional<int> code = ParseCommandLine(app, argc, argv)) return *code;

  Preemption preemption;        // outlives the daemon's thread for signals
  ReferenceService references;  // outlives its server
  Daemon daemon(STAGE, flags);
  if (absl::Status status = daemon.LoadJob(); !status.ok()) return daemon.Exit(kWrongUsage, status);
  const JobConfig& job = daemon.job();
  if (job.cluster().stages() == 0) {
    return daemon.Exit(kWrongUsage, flags.job + ": cluster.stages: the job has no stages");
  }
  if (absl::Status status = daemon.Serve({&references}); !status.ok()) {
    return daemon.Exit(kWrongUsage, status);
  }

  ProcessDevice device(daemon);
  absl::StatusOr<Datasets> data;
  absl::StatusOr<PipelineModel> model;
  TrainingProcess process = {daemon, preemption, STAGE, trace_file, nullptr, nullptr, nullptr};
  process.prepare = [&] {
    if (absl::Status chosen = device.Choose(); !chosen.ok()) return chosen;
    data = OpenDatasets(job.data(), job.seed());
    if (!data.ok()) return data.status();
    model = PlanPipeline(job, data->train->x());
    return model.status();
  };
  process.train = [&](Session& session, TrainingMetrics& metrics) -> absl::Status {
    if (absl::Status opened = device.Open(session, metrics.trace()); !opened.ok()) return opened;
    auto links = PipelineLinks::Start(
        {job.name(), flags.listen, daemon.address(), &references, Liveness(job), StallTimeout(job),
         daemon.credentials(), daemon.rpc_observer(), daemon.refused()},
        session);
    if (!links.ok()) return links.status();
    auto compute = StageCompute::Make(
        job, *model, session.member_ordinal() % job.cluster().stages(), device.get());
    if (!compute.ok()) {
      return absl::AbortedError(
          session.Fail(std::string(compute.status().message()), /*preempted=*/false).text());
    }
    absl::Status status = Stage({job, **compute, data->train->size(), data->test_samples(), session,
                                 **links, metrics, daemon.metrics(), daemon.log()})
                              .Run();
    device.Over();
    return status;
  };
  return Run(process);
}
