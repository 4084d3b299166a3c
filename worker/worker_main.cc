// parley-worker: trains the job's model on its part of the data, through coordinator and shards.
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/pipeline/pipeline_links.h"
#include "client/reference/hop.h"
#include "client/reference/reference_service.h"
#include "client/session.h"
#include "common/daemon/daemon.h"
#include "common/job/job_file.h"
#include "common/security/new_credentials.h"
#include "common/usable_cores.h"
#include "worker/data/datasets.h"
#include "worker/describe.h"
#include "worker/device/chosen_device.h"
#include "worker/fit.h"
#include "worker/gpu_group.h"
#include "worker/local_compute.h"
#include "worker/models/layer_profile.h"
#include "worker/models/network.h"
#include "worker/models/pipeline_model.h"
#include "worker/pipeline_compute.h"
#include "worker/preemption.h"
#include "worker/process_device.h"
#include "worker/threads.h"
#include "worker/trainer.h"
#include "worker/training_process.h"

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

// The same of a worker that drives stages.
struct PipelineWorkload {
  Datasets data;
  PipelineModel model;
};

absl::StatusOr<PipelineWorkload> PreparePipeline(const JobConfig& job) {
  auto data = OpenDatasets(job.data(), job.seed());
  if (!data.ok()) return data.status();
  auto model = PlanPipeline(job, data->train->x());
  if (!model.ok()) return model.status();
  if (absl::Status status = CheckFit(job, model->layers, *data); !status.ok()) return status;
  return PipelineWorkload{*std::move(data), *std::move(model)};
}

struct DescribeFlags {
  bool describe = false;
  double profile = 0;  // how long the layers of a pipeline are measured; 0: not at all
  bool check_device = false;
};

// What a microbatch takes in each layer, and between two stages.
absl::StatusOr<PipelineProfile> ProfilePipeline(const JobConfig& job, const PipelineModel& model,
                                                const SampleLayout& x, absl::Duration budget) {
  at::set_num_threads(ComputeThreads(job, UsableCores(), ComputeProcesses(job)));
  auto layers = ProfileLayers(model.layers, x, job.data().batch(), budget);
  if (!layers.ok()) return layers.status();
  PipelineProfile profile;
  profile.hop_bytes = LargestHop(model, *layers);
  profile.layers = *std::move(layers);
  profile.input_bytes = job.data().batch() * x.bytes();
  if (model.parts() == 1) return profile;
  // As between machines, where connections are TLS unless the job says otherwise.
  SharedCredentials credentials;
  if (job.tls() != Tls::OFF) {
    absl::StatusOr<Credentials> made = NewCredentials(/*tls=*/true);
    if (!made.ok()) return made.status();
    credentials = std::make_shared<const Credentials>(*std::move(made));
  }
  const auto hop = MeasureHop(profile.hop_bytes, budget / 10, credentials);
  if (!hop.ok()) return hop.status();
  profile.hop = *hop;
  return profile;
}

int DescribeWorkload(const std::string& job_file, const DescribeFlags& flags) {
  const auto wrong = [](const absl::Status& status) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return kWrongUsage;
  };
  const auto job = LoadJob(job_file, {});
  if (!job.ok()) return wrong(job.status());
  if (flags.check_device) {
    const auto chosen = ChosenDevice::Choose(job->device(), DevicePluginPath());
    if (!chosen.ok()) return wrong(chosen.status());
  }
  if (job->cluster().stages() != 0) {
    const auto workload = PreparePipeline(*job);
    if (!workload.ok()) return wrong(workload.status());
    const auto& [data, model] = *workload;
    absl::StatusOr<PipelineProfile> profile = PipelineProfile();
    if (flags.profile > 0) {
      profile = ProfilePipeline(*job, model, data.train->x(), absl::Seconds(flags.profile));
      if (!profile.ok()) return wrong(profile.status());
    }
    std::printf("%s\n", Describe(model, *profile, data).c_str());
    return kFinished;
  }
  const auto workload = Prepare(*job);
  if (!workload.ok()) return wrong(workload.status());
  const auto description = Describe(*workload->network, workload->data);
  if (!description.ok()) return wrong(description.status());
  std::printf("%s\n", description->c_str());
  return kFinished;
}

// The whole model in this process.
int TrainAlone(Daemon& daemon, Preemption& preemption, const std::string& trace_file) {
  ProcessDevice device(daemon);
  absl::StatusOr<Workload> workload;  // its network may keep tensors of the device
  std::optional<GpuGroup> group;      // none: the host adds up, or there is no group
  TrainingProcess process = {daemon, preemption, WORKER, trace_file, nullptr, nullptr, nullptr};
  process.reduce_by = [&](std::unique_ptr<Reducer> on_host) {
    return group.has_value() ? group->ReduceBy(std::move(on_host)) : std::move(on_host);
  };
  process.prepare = [&] {
    if (absl::Status chosen = device.Choose(); !chosen.ok()) return chosen;
    workload = Prepare(daemon.job());
    return workload.status();
  };
  process.train = [&](Session& session, TrainingMetrics& metrics) {
    if (absl::Status opened = device.Open(session, metrics.trace()); !opened.ok()) return opened;
    if (device.get() != nullptr && daemon.job().cluster().group_reduction() == ON_GPUS) {
      if (device.is_shared()) {
        const std::string why = absl::StrCat(
            "cluster.group_reduction is ON_GPUS, which needs a GPU for each worker, and on this "
            "machine other processes have all of them (this one would share ",
            device.get()->name(), "): fewer workers on it, or ON_HOST");
        return absl::InternalError(session.Fail(why, /*preempted=*/false).text());
      }
      group.emplace(JoinByPlugin(device.plugin(), device.of_plugin()));
    }
    LocalCompute compute({daemon.job(), *workload->network, workload->data, session, metrics,
                          device.get(), group.has_value() ? &*group : nullptr, &daemon.log()});
    Trainer trainer({daemon.job(), compute, session, metrics, daemon.log(),
                     [&] { return preemption.AskedBeforeStep(); }});
    absl::Status status = trainer.Run();
    device.Over();
    return status;
  };
  return Run(process);
}

// With stages that compute.
int DrivePipeline(Daemon& daemon, Preemption& preemption, ReferenceService& references,
                  const std::string& trace_file) {
  absl::StatusOr<PipelineWorkload> workload;
  TrainingProcess process = {daemon, preemption, WORKER, trace_file, nullptr, nullptr, nullptr};
  process.prepare = [&] {
    workload = PreparePipeline(daemon.job());
    return workload.status();
  };
  process.train = [&](Session& session, TrainingMetrics& metrics) {
    auto links =
        PipelineLinks::Start({daemon.job().name(), daemon.flags().listen, daemon.address(),
                              &references, Liveness(daemon.job()), StallTimeout(daemon.job()),
                              daemon.credentials(), daemon.rpc_observer(), daemon.refused()},
                             session);
    if (!links.ok()) return links.status();
    PipelineCompute compute({daemon.job(), workload->model, workload->data, session, **links,
                             metrics, daemon.metrics()});
    Trainer trainer({daemon.job(), compute, session, metrics, daemon.log(),
                     [&] { return preemption.AskedBeforeStep(); }});
    return trainer.Run();
  };
  return Run(process);
}

int Main(int argc, char** argv) {
  CLI::App app("Trains the model of a parley job on this worker's part of the data.",
               "parley-worker");
  DaemonFlags flags;
  AddDaemonFlags(app, flags, /*with_coordinator=*/true);
  DescribeFlags about;
  app.add_flag(
      "--describe", about.describe,
      "Print the model's tensors and the number of samples as JSON, and end; contacts nobody");
  app.add_option("--profile", about.profile,
                 "With --describe, of a job with pipelines: measure the layers for so many seconds")
      ->check(CLI::Range(0.0, 3600.0));
  app.add_flag("--check_device", about.check_device,
               "With --describe: end with an error where this machine lacks the job's device");
  std::string trace_file;
  AddTraceFlag(app, trace_file);
  CLI::Option* const coordinator = app.get_option("--coordinator")->required(false);
  if (const auto code = ParseCommandLine(app, argc, argv)) return *code;
  if (about.describe) return DescribeWorkload(flags.job, about);
  if (coordinator->empty()) {
    std::fprintf(stderr, "parley-worker: --coordinator is required\n");
    return kWrongUsage;
  }

  Preemption preemption;        // outlives the daemon's thread for signals
  ReferenceService references;  // outlives its server
  Daemon daemon(WORKER, flags);
  if (absl::Status status = daemon.LoadJob(); !status.ok()) return daemon.Exit(kWrongUsage, status);
  const bool drives = daemon.job().cluster().stages() != 0;
  std::vector<grpc::Service*> services;
  if (drives) services.push_back(&references);
  if (absl::Status status = daemon.Serve(services); !status.ok()) {
    return daemon.Exit(kWrongUsage, status);
  }
  return drives ? DrivePipeline(daemon, preemption, references, trace_file)
                : TrainAlone(daemon, preemption, trace_file);
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
